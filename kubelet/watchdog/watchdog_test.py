"""Tests of what keeps systemd from killing the kubelet."""

from __future__ import annotations

import os
import queue

import pytest

from kubelet import watchdog
from kubelet.watchdog import watchdog as watchdoglib
from pkg import golang
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.util import sdnotify

CTX = golang.background()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[bytes]:
    """What a systemd hears whose watchdog waits for two milliseconds."""
    heard: queue.Queue[bytes] = queue.Queue()
    monkeypatch.setattr(sdnotify, "notify", heard.put)
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setattr(watchdoglib, "_RETRY_PERIOD", 0)
    return heard


class FakeCheck:
    """Fails while it has something to raise; `failed` has an entry for each time."""

    def __init__(self) -> None:
        self.err: Exception | None = None
        self.failed: queue.Queue[None] = queue.Queue()

    def __call__(self) -> None:
        if self.err is not None:
            self.failed.put(None)
            raise self.err


@failures
def test_systemd_is_told_as_long_as_the_kubelet_is_well(told: queue.Queue[bytes], err: Exception) -> None:
    check = FakeCheck()
    ctx, cancel = golang.with_cancel(CTX)
    with golang.ThreadGroup() as threads:
        watchdog.start(ctx, check)
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


def test_what_does_not_arrive_is_sent_again(told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdnotify, "notify", failing_once(sdnotify.notify, OSError("no descriptor")))
    watchdoglib._tell(CTX, FakeCheck())
    assert told.get_nowait() == b"WATCHDOG=1"


@pytest.mark.parametrize(
    ("name", "value"),
    [("WATCHDOG_USEC", ""), ("WATCHDOG_PID", str(os.getpid() + 1))],
    ids=["no watchdog", "for another process"],
)
def test_without_a_watchdog_there_is_nothing_to_do(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with golang.ThreadGroup() as threads:
        watchdog.start(CTX, FakeCheck())
    assert threads.alive() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("WATCHDOG_USEC", "30s"), ("WATCHDOG_USEC", "0"), ("WATCHDOG_USEC", "-1"), ("WATCHDOG_PID", "x")],
)
def test_settings_that_cannot_be_read(
    told: queue.Queue[bytes], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="configure watchdog: "):
        watchdog.start(CTX, FakeCheck())
