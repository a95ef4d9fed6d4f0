"""Test many streams at once: none fails, and the kubelet releases the resources that they used."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from framework import streams
from framework.kubelet_process import KubeletProcess
from framework.server_load import OPEN_SERVER, Load, Usage, load_pod
from framework.waiting import wait_for

from pkg.apimachinery.util.proxy.testing import WebSocketClient

# `make bench` runs the same load for a minute.
SECONDS = 6.0
# After the second load the kubelet may hold at most this many MiB more than after the first.
GROWTH = 10.0


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., KubeletProcess]) -> KubeletProcess:
    kubelet = new_kubelet("load", OPEN_SERVER)
    kubelet.start()
    kubelet.write(load_pod())
    kubelet.wait_for_running("load")
    return kubelet


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
def test_a_command_over_a_websocket(kubelet: KubeletProcess, protocol: str) -> None:
    """The runtime itself speaks the older version of the protocol, and the kubelet translates the newer one."""
    command = ["sh", "-c", "read line; echo $line; echo oops >&2; exit 4"]
    path = streams.exec_path(f"load-{kubelet.node}", "main", command, stdin=True) + "&error=1"
    with WebSocketClient(streams.connect("127.0.0.1", kubelet.port, True), path, protocol) as client:
        assert client.subprotocol == protocol, (client.refused, client.refusal)
        client.message(b"\x00hello\n")
        got: dict[int, bytes] = {}
        for message in client.messages():
            got[message[0]] = got.get(message[0], b"") + message[1:]
    assert (got[1], got[2]) == (b"hello\n", b"oops\n")
    assert json.loads(got[3])["details"]["causes"] == [{"reason": "ExitCode", "message": "4"}]


def test_many_streams_at_once_leave_nothing_behind(kubelet: KubeletProcess) -> None:
    # The first stream of each kind loads modules that stay in memory.
    Load(kubelet, execs=1, forwards=1, followers=1).run(1.0)
    before = Usage.of(kubelet.pid)

    after: list[Usage] = []
    for _ in range(2):
        load = Load(kubelet)
        load.run(SECONDS)
        assert load.exchanges > load.execs + load.forwards
        assert load.lines > load.followers
        assert load.peak.threads - before.threads < 1.2 * (load.execs + load.forwards + load.followers), load.peak

        def given_back() -> bool:
            now = Usage.of(kubelet.pid)
            return now.threads <= before.threads + 2 and now.descriptors <= before.descriptors + 2

        wait_for("threads and descriptors are released", given_back, 120, lambda: (before, Usage.of(kubelet.pid)))
        after.append(Usage.of(kubelet.pid))
    assert after[1].memory - after[0].memory < GROWTH, (before, after)
