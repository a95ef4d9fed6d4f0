"""Tests of the read-only server and of the check of the sync loop."""

from __future__ import annotations

import datetime
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kubelet import server
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock


class Host:
    """A kubelet with one pod and another one running."""

    resync_interval = 60.0

    def __init__(self) -> None:
        self.entered: datetime.datetime | None = None
        self.err: Exception | None = None

    def get_pods(self) -> list[v1.Pod]:
        return [v1.Pod(metadata=metav1.ObjectMeta(name="configured"))]

    def get_running_pods(self, ctx: golang.Context) -> list[v1.Pod]:
        if self.err is not None:
            raise self.err
        return [v1.Pod(metadata=metav1.ObjectMeta(name="running"))]

    def latest_loop_entry_time(self) -> datetime.datetime | None:
        return self.entered


@contextmanager
def serving(host: Host) -> Iterator[int]:
    made = server.ReadOnlyServer(golang.background(), host, "127.0.0.1", 0)
    thread = golang.go(made.serve, name="read-only-server")
    try:
        yield made.server_port
    finally:
        made.stop()
        thread.join(5)


def get(port: int, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.getheader("Content-Type", ""), answer.read().decode()
    connection.close()
    return found


@pytest.mark.parametrize(
    ("path", "name"), [("/pods", "configured"), ("/pods/", "configured"), ("/runningpods", "running")]
)
def test_pods(path: str, name: str) -> None:
    with serving(Host()) as port:
        status, content_type, body = get(port, path)
    assert (status, content_type) == (200, "application/json")
    found = json.loads(body)
    assert (found["kind"], found["apiVersion"]) == ("PodList", "v1")
    assert [item["metadata"]["name"] for item in found["items"]] == [name]


def test_metrics_and_health() -> None:
    host = Host()
    with serving(host) as port:
        status, content_type, body = get(port, "/metrics")
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert "# TYPE " in body
        assert get(port, "/healthz")[::2] == (200, "ok")
        assert get(port, "/exec")[0] == 404
        host.entered = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
        status, _, body = get(port, "/healthz")
    assert status == 500
    assert "[-]syncloop failed: sync Loop took longer than expected" in body


def test_port_that_is_taken() -> None:
    with serving(Host()) as port, pytest.raises(OSError, match="in use"):
        server.ReadOnlyServer(golang.background(), Host(), "127.0.0.1", port)


@pytest.mark.parametrize(
    ("resync", "seconds", "healthy"),
    [
        (60.0, None, True),
        (60.0, 0.0, True),
        (60.0, 300.0, True),
        (60.0, 300.5, False),
        (600.0, 1200.0, True),
        (600.0, 1201.0, False),
    ],
)
def test_sync_loop_health_check(resync: float, seconds: float | None, healthy: bool) -> None:
    clock, host = FakeClock(), Host()
    host.resync_interval = resync
    if seconds is not None:
        host.entered = clock.now()
        clock.step(seconds)
    check = server.sync_loop_health_check(host, clock)
    if healthy:
        check()
    else:
        with pytest.raises(RuntimeError, match="sync Loop took longer than expected"):
            check()
