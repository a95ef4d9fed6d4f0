"""Test container logs over the kubelet's own port: valid and invalid requests, and two hundred followers at once.

When the followers disconnect, or their containers end, the kubelet must release everything that they used.
"""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.hollow_kubelet import HollowKubelet
from framework.log_followers import LogFollowers, insecure_context, line
from framework.pods import pod, sleeper

PODS = 10
FOLLOWERS = 200
# Threads of gRPC or of the server may start late.
SPARE = 3


@dataclass(frozen=True)
class Held:
    """Count the resources that the kubelet's process holds."""

    threads: int
    descriptors: int
    inotify: int


def held(kubelet: HollowKubelet) -> Held:
    links = []
    for name in os.listdir(f"/proc/{kubelet.pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{kubelet.pid}/fd/{name}"))
        except FileNotFoundError:
            continue  # The kubelet has closed this descriptor since the listing.
    return Held(kubelet.threads(), len(links), sum("inotify" in link for link in links))


@pytest.fixture(scope="module")
def kubelet(new_kubelet: Callable[..., HollowKubelet]) -> HollowKubelet:
    """Return a kubelet that admits every client. Each container of its pods has logged one line."""
    config = {
        "enableServer": True,
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "enableSystemLogQuery": True,
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


def get(kubelet: HollowKubelet, path: str) -> tuple[int, str]:
    """Return the response to a request for the path, which is sent unchanged."""
    connection = http.client.HTTPSConnection("127.0.0.1", kubelet.port, timeout=30, context=insecure_context())
    with closing(connection):
        connection.putrequest("GET", path)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("tail=1", 200, "line 0\x03\n"),
        ("tail=all", 200, "line 0\x03\n"),
        ("tailLines=9223372036854775807&limitBytes=9223372036854775807", 200, "line 0\x03\n"),
        ("sinceSeconds=9223372036854775807", 200, "line 0\x03\n"),
        ("sinceTime=9999-12-31T23:59:59Z", 200, ""),
        ("sinceTime=", 200, "line 0\x03\n"),
        ("follow=0&timestamps=false", 200, "line 0\x03\n"),
        ("tailLines=9223372036854775808", 400, '{"message": "Unable to decode query."}'),
        ("tailLines=-9" + "9" * 4000, 400, '{"message": "Unable to decode query."}'),
        ("tailLines=ten", 400, '{"message": "Unable to decode query."}'),
        ("tail=ten", 400, '{"message": "Unable to decode query."}'),
        ("limitBytes=1.5", 400, '{"message": "Unable to decode query."}'),
        ("sinceTime=yesterday", 400, '{"message": "Unable to decode query."}'),
        ("sinceTime=0000-00-00T00:00:00Z", 400, '{"message": "Unable to decode query."}'),
        ("tailLines=-1", 422, '{"message": "Invalid request."}'),
        ("limitBytes=0", 422, '{"message": "Invalid request."}'),
        ("sinceSeconds=0", 422, '{"message": "Invalid request."}'),
        ("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, '{"message": "Invalid request."}'),
        ("stream=stdout", 422, '{"message": "Invalid request."}'),
        (
            "stream=Stdout",
            400,
            'unable to return the given log stream: "Stdout". Please enable PodLogsQuerySplitStreams feature gate in '
            "kubelet",
        ),
        ("previous=true", 400, 'previous terminated container "main" in pod "POD" not found'),
    ],
)
def test_what_can_be_asked_of_a_log(kubelet: HollowKubelet, query: str, status: int, text: str) -> None:
    name = kubelet.full_name("p0")
    assert get(kubelet, f"/containerLogs/default/{name}/main?{query}") == (status, text.replace("POD", name))


@pytest.mark.parametrize(
    ("path", "statuses"),
    [
        ("/logs/../../etc/passwd", {307, 404}),
        ("/logs/%2e%2e/%2e%2e/etc/passwd", {307, 404}),
        ("/logs/..%2f..%2fetc%2fpasswd", {307, 404}),
        ("/logs/%00", {400}),
        ("/logs/none/" + "x" * 5000, {404}),
        ("/logs/?query=/../../etc/passwd", {406}),
        ("/logs/?query=%20", {400}),
        ("/logs/?query=a&pattern=(", {406}),
        ("/logs/?query=a;rm", {406}),
        ("/logs/?tailLines=100001&query=a", {406}),
        ("/containerLogs/default/none/main", {404}),
        ("/containerLogs/default/..%2f..%2fetc/passwd", {307, 404}),
        ("/containerLogs/../../etc/passwd", {307, 404}),
    ],
)
def test_nothing_else_is_shown(kubelet: HollowKubelet, path: str, statuses: set[int]) -> None:
    status, text = get(kubelet, path)
    assert status in statuses
    assert "root:" not in text


def test_two_hundred_followers(kubelet: HollowKubelet) -> None:
    targets = [target(kubelet, i % PODS) for i in range(FOLLOWERS)]
    watches = held(kubelet).inotify
    # A first follower triggers one-time costs, which must not count as costs of the others.
    with LogFollowers(kubelet.port, targets[:1], insecure_context()) as warm:
        kubelet.wait_for_condition("the first follower's line", lambda: warm.followers[0].lines == 1)
    kubelet.wait_for_condition("the first follower's watch is gone", lambda: held(kubelet).inotify == watches)
    before = held(kubelet)

    with LogFollowers(kubelet.port, targets, insecure_context()) as clients:
        followers = clients.followers
        kubelet.wait_for_condition("first lines", lambda: all(each.lines == 1 for each in followers))
        assert {each.status for each in followers} == {200}
        # All followers share one inotify instance, because a user may have only 128.
        assert held(kubelet).inotify == before.inotify + 1
        for log in logs(kubelet):
            with log.open("ab") as f:
                f.writelines(line(n) for n in range(1, 100))
        kubelet.wait_for_condition("the lines of all followers", lambda: all(each.lines == 100 for each in followers))

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

    kubelet.wait_for_condition(f"at most the resources of {before}", as_before)


def test_client_that_does_not_read(kubelet: HollowKubelet) -> None:
    """The kubelet waits for a client that does not read, without buffering the log, until the client disconnects."""
    kubelet.write(pod("large", sleeper(), grace=1))
    kubelet.wait_for_running("large")
    (log,) = (each for each in logs(kubelet) if f"_{kubelet.full_name('large')}_" in str(each))
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(line(0) * 500_000)
    kubelet.wait_for_condition("no other connection", lambda: served(kubelet) == 0)
    memory = resident(kubelet)

    with socket.create_connection(("127.0.0.1", kubelet.port)) as sock, insecure_context().wrap_socket(sock) as client:
        path = f"/containerLogs/default/{kubelet.full_name('large')}/main"
        client.sendall(f"GET {path}?follow=true HTTP/1.1\r\nHost: kubelet\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 200"
        # The thread of an earlier connection may end a little later.
        kubelet.wait_for_condition("only the client's connection", lambda: served(kubelet) == 1)
        assert resident(kubelet) < memory + 20 * 1024

    kubelet.wait_for_condition("the thread has ended", lambda: served(kubelet) == 0)


def served(kubelet: HollowKubelet) -> int:
    """Return how many connections have a thread, without the connection of this query."""
    _, threads = get(kubelet, "/debug/pprof/goroutine?debug=2")
    return threads.count("[kubelet-server-connection]") - 1


def resident(kubelet: HollowKubelet) -> int:
    """Return the process's resident memory, in KiB."""
    status = Path(f"/proc/{kubelet.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])
