"""Test the health checks.

Go: k8s.io/apiserver/pkg/server/healthz/healthz_test.go
"""

from __future__ import annotations

import threading

import pytest

from pkg import klog
from pkg.apiserver.server import healthz
from pkg.component_base.metrics import testing as metricstesting
from pkg.component_base.metrics.prometheus import slis
from pkg.golang import http
from pkg.golang.http.testing import record
from pkg.golang.testing import frames_kept_after

GOOD = healthz.HealthChecker("good", lambda: None)


def _fail() -> None:
    raise RuntimeError("loop stalled")


BAD = healthz.HealthChecker("bad", _fail)


def _mux(*checks: healthz.HealthChecker) -> http.ServeMux:
    mux = http.ServeMux()
    healthz.install_handler(mux, *checks)
    return mux


@pytest.mark.parametrize(
    ("checks", "target", "status", "body"),
    [
        ((), "/healthz", 200, "ok"),
        ((), "/healthz/ping", 200, "ok"),
        ((GOOD,), "/healthz", 200, "ok"),
        ((GOOD,), "/healthz?verbose", 200, "[+]good ok\nhealthz check passed\n"),
        ((GOOD,), "/healthz/good", 200, "ok"),
        ((GOOD,), "/healthz/none", 404, "404 page not found\n"),
        ((GOOD, BAD), "/healthz", 500, "[+]good ok\n[-]bad failed: reason withheld\nhealthz check failed\n"),
        ((GOOD, BAD), "/healthz/bad", 500, "internal server error: loop stalled\n"),
        ((GOOD, BAD), "/healthz/good", 200, "ok"),
        (
            (GOOD, BAD),
            "/healthz?verbose&exclude=bad",
            200,
            "[+]good ok\n[+]bad excluded: ok\nhealthz check passed\n",
        ),
        (
            (GOOD,),
            "/healthz?verbose=1&exclude=b&exclude=a",
            200,
            '[+]good ok\nwarn: some health checks cannot be excluded: no matches for "a","b"\nhealthz check passed\n',
        ),
    ],
)
def test_answers(checks: tuple[healthz.HealthChecker, ...], target: str, status: int, body: str) -> None:
    answer = record(_mux(*checks), "GET", target)
    assert (answer.status, answer.text) == (status, body)


def test_results_are_counted() -> None:
    slis.register()
    with metricstesting.moves(slis.HEALTHCHECKS_TOTAL.labels("bad", "healthz", "error")):
        record(_mux(BAD), "GET", "/healthz")


def test_a_log_that_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    now, blocked, release = [100.0], threading.Event(), threading.Event()

    def flush() -> None:
        blocked.set()
        release.wait(30)

    monkeypatch.setattr(klog, "flush", flush)
    monkeypatch.setattr("pkg.apiserver.server.healthz.healthz.time.monotonic", lambda: now[0])
    mux = _mux(healthz.LOG_HEALTHZ)
    first = threading.Thread(target=record, args=(mux, "GET", "/healthz"))
    first.start()
    assert blocked.wait(30)
    now[0] += 120
    assert record(mux, "GET", "/healthz/log").text == "ok"
    now[0] += 1
    assert record(mux, "GET", "/healthz/log").text == "internal server error: logging blocked\n"
    release.set()
    first.join()
    assert record(mux, "GET", "/healthz/log").text == "ok"


def test_check_that_fails_keeps_nothing_of_the_request() -> None:
    mux = _mux(GOOD, BAD)
    assert frames_kept_after(lambda: record(mux, "GET", "/healthz")) == []
