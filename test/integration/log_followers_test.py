"""Two hundred clients follow logs, go away or see their containers end, and the kubelet is as it was before."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.hollow_kubelet import HollowKubelet
from framework.log_followers import LogFollowers, insecure_context, line
from framework.pods import pod, sleeper

PODS = 10
FOLLOWERS = 200
# A thread of gRPC or of the server may come late.
SPARE = 3


@dataclass(frozen=True)
class Held:
    """What the kubelet's process has."""

    threads: int
    descriptors: int
    inotify: int


def held(kubelet: HollowKubelet) -> Held:
    links = []
    for name in os.listdir(f"/proc/{kubelet.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{kubelet.pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # just closed
    return Held(kubelet.threads(), len(links), sum("inotify" in link for link in links))


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., HollowKubelet]) -> HollowKubelet:
    """With pods whose containers have logged a line each. It lets everybody in."""
    config = {
        "enableServer": True,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
    }
    kubelet = new_kubelet("followers", config)
    kubelet.start()
    kubelet.write_all(*(pod(f"p{i}", sleeper(), grace=1, restartPolicy="Never") for i in range(PODS)))
    for i in range(PODS):
        kubelet.wait_for_running(f"p{i}")
    for log in logs(kubelet):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(line(0))
    return kubelet


def logs(kubelet: HollowKubelet) -> list[Path]:
    return [Path(each.status.log_path) for each in kubelet.runtime.containers if runs(each.state)]


def runs(state: int) -> bool:
    return state == runtimeapi.CONTAINER_RUNNING


def target(kubelet: HollowKubelet, i: int) -> str:
    return f"/containerLogs/default/{kubelet.full_name(f'p{i}')}/main?follow=true"


def test_two_hundred_followers(kubelet: HollowKubelet) -> None:
    targets = [target(kubelet, i % PODS) for i in range(FOLLOWERS)]
    watches = held(kubelet).inotify
    # What the first request of all brings about is not what followers cost.
    with LogFollowers(kubelet.port, targets[:1], insecure_context()) as warm:
        kubelet.wait_for_condition("the first follower's line", lambda: warm.followers[0].lines == 1)
    kubelet.wait_for_condition("the first follower gone", lambda: held(kubelet).inotify == watches)
    before = held(kubelet)

    with LogFollowers(kubelet.port, targets, insecure_context()) as clients:
        followers = clients.followers
        kubelet.wait_for_condition("first lines", lambda: all(each.lines == 1 for each in followers))
        assert {each.status for each in followers} == {200}
        # Not one for each, of which a user may have 128.
        assert held(kubelet).inotify == before.inotify + 1
        for log in logs(kubelet):
            with log.open("ab") as f:
                f.writelines(line(n) for n in range(1, 100))
        kubelet.wait_for_condition("all lines", lambda: all(each.lines == 100 for each in followers))

        clients.hang_up(followers[: FOLLOWERS // 2])
        for i in range(PODS):
            kubelet.remove(f"p{i}")
        kubelet.wait_for_condition("the containers' ends", lambda: all(each.ended for each in followers))

    def as_before() -> bool:
        now = held(kubelet)
        return (
            now.inotify == before.inotify
            and now.threads <= before.threads + SPARE
            and now.descriptors <= before.descriptors + SPARE
        )

    kubelet.wait_for_condition(f"everything given back, as in {before}", as_before)


def test_client_that_does_not_read(kubelet: HollowKubelet) -> None:
    """It is waited for, without memory for what it does not take, and its going away ends that."""
    kubelet.write(pod("large", sleeper(), grace=1))
    kubelet.wait_for_running("large")
    (log,) = logs(kubelet)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(line(0) * 500_000)
    before = held(kubelet)
    memory = resident(kubelet)

    with socket.create_connection(("127.0.0.1", kubelet.port)) as sock, insecure_context().wrap_socket(sock) as client:
        path = f"/containerLogs/default/{kubelet.full_name('large')}/main"
        client.sendall(f"GET {path}?follow=true HTTP/1.1\r\nHost: kubelet\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        assert held(kubelet).threads > before.threads
        assert resident(kubelet) < memory + 20 * 1024

    kubelet.wait_for_condition("the thread ended", lambda: held(kubelet).threads <= before.threads)


def resident(kubelet: HollowKubelet) -> int:
    """In KiB."""
    status = Path(f"/proc/{kubelet.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
