"""Test the notifications of the systemd watchdog.

Go: pkg/kubelet/watchdog/watchdog_linux_test.go
"""

from __future__ import annotations

import os
import queue
from dataclasses import replace

import pytest

from kubelet import watchdog
from kubelet.watchdog import watchdog as watchdoglib
from kubelet.watchdog.testing import FakeHealthCheck
from pkg import golang, klog
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.apiserver.server import healthz
from pkg.util import sdnotify

CTX = golang.background()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[bytes]:
    """Return the notifications to a systemd with a watchdog timeout of two milliseconds."""
    heard: queue.Queue[bytes] = queue.Queue()

    def notify(state: bytes) -> bool:
        heard.put(state)
        return True

    monkeypatch.setattr(sdnotify, "notify", notify)
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr(watchdoglib, "_MINIMAL_NOTIFY_INTERVAL", 0)
    monkeypatch.setattr(watchdoglib, "_RETRY_BACKOFF", replace(watchdoglib._RETRY_BACKOFF, duration=0.0))
    return heard


@failures
@pytest.mark.parametrize("of_sync_loop", [True, False], ids=["sync loop", "another part"])
def test_systemd_is_told_as_long_as_the_kubelet_is_well(
    told: queue.Queue[bytes], err: Exception, of_sync_loop: bool
) -> None:
    sync_loop, other = FakeHealthCheck(), FakeHealthCheck()
    check = sync_loop if of_sync_loop else other
    ctx, cancel = golang.with_cancel(CTX)
    health_checker = watchdog.HealthChecker()
    health_checker.set_health_checkers(sync_loop, [healthz.HealthChecker("other", other)])
    with golang.ThreadGroup() as threads:
        health_checker.start(ctx)
    assert [told.get(timeout=30) for _ in range(3)] == [b"WATCHDOG=1"] * 3
    check.err = err
    check.failed.get(timeout=30)
    before = told.qsize()
    check.failed.get(timeout=30)
    assert told.qsize() == before
    check.err = None
    for _ in range(before + 1):
        told.get(timeout=30)
    cancel()
    assert threads.join(30) == []


def test_systemd_is_told_before_there_are_checks(told: queue.Queue[bytes]) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    with golang.ThreadGroup() as threads:
        watchdog.HealthChecker().start(ctx)
    assert told.get(timeout=30) == b"WATCHDOG=1"
    cancel()
    assert threads.join(30) == []


def test_check_that_fails_is_named(told: queue.Queue[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    health_checker = watchdog.HealthChecker()
    health_checker.set_health_checkers(
        lambda: None, [healthz.HealthChecker("device-plugin", raising(ValueError("the server is gone")))]
    )
    health_checker._tell(CTX)
    assert told.empty()
    logged = capsys.readouterr().err
    assert "Do not notify watchdog this iteration as the kubelet is reportedly not healthy" in logged
    assert 'err="checker device-plugin failed: the server is gone"' in logged


def test_log_that_stands_still_does_not_keep_systemd_from_being_told(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(klog, "flush", raising(RuntimeError("logging blocked")))
    health_checker = watchdog.HealthChecker()
    health_checker.set_health_checkers(lambda: None, [])
    health_checker._tell(CTX)
    assert told.get_nowait() == b"WATCHDOG=1"


def test_what_does_not_arrive_is_sent_again(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sdnotify, "notify", failing_once(sdnotify.notify, OSError("no descriptor")))
    watchdog.HealthChecker()._tell(CTX)
    assert told.get_nowait() == b"WATCHDOG=1"
    assert "Failed to notify watchdog" not in capsys.readouterr().err


def test_what_does_not_arrive_the_second_time_is_logged(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tries: list[bytes] = []

    def notify(state: bytes) -> bool:
        tries.append(state)
        raise OSError("no descriptor")

    monkeypatch.setattr(sdnotify, "notify", notify)
    watchdog.HealthChecker()._tell(CTX)
    assert tries == [b"WATCHDOG=1"] * 2
    assert '"Failed to notify watchdog" err="no descriptor"' in capsys.readouterr().err


def test_systemd_that_cannot_be_told_is_logged(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    watchdog.HealthChecker()._tell(CTX)
    logged = capsys.readouterr().err
    assert "Failed to notify watchdog" in logged
    assert "notification not supported - (i.e. NOTIFY_SOCKET is unset)" in logged


@pytest.mark.parametrize(
    ("name", "value"),
    [("WATCHDOG_USEC", ""), ("WATCHDOG_PID", str(os.getpid() + 1))],
    ids=["no watchdog", "for another process"],
)
def test_without_a_watchdog_there_is_nothing_to_do(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    health_checker = watchdog.HealthChecker()
    health_checker.set_health_checkers(lambda: None, [])
    with golang.ThreadGroup() as threads:
        health_checker.start(CTX)
    assert threads.alive() == []


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("WATCHDOG_USEC", "30s", "configure watchdog: "),
        ("WATCHDOG_USEC", "0", "configure watchdog: "),
        ("WATCHDOG_USEC", "-1", "configure watchdog: "),
        ("WATCHDOG_PID", "x", "configure watchdog: "),
        ("WATCHDOG_USEC", "1000000", "configure watchdog timeout too small: 1s"),
        ("WATCHDOG_USEC", "100000", "configure watchdog timeout too small: 100ms"),
    ],
)
def test_settings_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, name: str, value: str, fault: str) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=fault):
        watchdog.HealthChecker()
