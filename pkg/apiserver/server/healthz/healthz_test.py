"""Go: staging/src/k8s.io/apiserver/pkg/server/healthz/healthz_test.go"""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from pkg import golang
from pkg.apiserver.server.healthz import HealthzServer


def _broken() -> None:
    raise RuntimeError("loop stalled")


@pytest.fixture
def server() -> Iterator[HealthzServer]:
    server = HealthzServer("127.0.0.1", 0, {"good": lambda: None})
    thread = golang.go(server.serve, name="healthz-server")
    yield server
    server.stop()
    thread.join(5)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("broken", "path", "status", "body"),
    [
        (False, "/healthz", 200, "ok"),
        (False, "/healthz?verbose", 200, "[+]ping ok\n[+]good ok\nhealthz check passed\n"),
        (False, "/healthz/good", 200, "ok"),
        (False, "/healthz/none", 404, "404 page not found\n"),
        (False, "/", 404, "404 page not found\n"),
        (True, "/healthz/ping", 200, "ok"),
        (
            True,
            "/healthz",
            500,
            "[+]ping ok\n[+]good ok\n[-]loop failed: loop stalled\nhealthz check failed\n",
        ),
    ],
)
def test_answers(server: HealthzServer, broken: bool, path: str, status: int, body: str) -> None:
    if broken:
        server.checks["loop"] = _broken
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read().decode()) == (status, body)
    connection.close()


def test_a_taken_port_is_an_error(server: HealthzServer) -> None:
    with pytest.raises(OSError):
        HealthzServer("127.0.0.1", server.server_port, {})
