"""Test notifications to systemd."""

from __future__ import annotations

import os
import socket

import pytest

from pkg.util import sdnotify


def test_nobody_wants_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not sdnotify.notify(sdnotify.READY)


def test_socket_that_is_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"sdnotify-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(30)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        assert sdnotify.notify(sdnotify.READY)
        assert listening.recv(100) == b"READY=1"


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    with pytest.raises(OSError, match="No such file"):
        sdnotify.notify(sdnotify.READY)


@pytest.mark.parametrize(
    ("microseconds", "pid", "timeout"),
    [("", None, None), ("30000000", None, 30.0), ("1", os.getpid(), 1e-6), ("30000000", os.getpid() + 1, None)],
    ids=["no watchdog", "for any process", "for this process", "for another process"],
)
def test_watchdog_timeout(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, pid: int | None, timeout: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.setenv("WATCHDOG_PID", "" if pid is None else str(pid))
    assert sdnotify.watchdog_timeout() == timeout
