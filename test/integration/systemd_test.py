"""Test the messages that a kubelet sends to systemd if systemd has started it."""

from __future__ import annotations

import socket
from collections.abc import Callable

from framework.hollow_kubelet import HollowKubelet


def test_systemd_is_told_that_the_kubelet_is_up_and_well(new_kubelet: Callable[..., HollowKubelet]) -> None:
    kubelet = new_kubelet("told")
    path = str(kubelet.folder / "notify")
    kubelet.environment |= {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "2000000"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(path)
        systemd.settimeout(60)
        kubelet.spawn()
        awaited = {b"READY=1", b"WATCHDOG=1"}
        while awaited:
            awaited.discard(systemd.recv(100))
