"""Test that neither pods nor the node suffer when the time of day jumps because an administrator or NTP sets it.

The clocks of the kubelet and the runtime jump together, as on one machine. The API server's clock does not jump.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from framework import node_history
from framework.apiserver.cluster import Cluster, Options
from framework.apiserver.interfaces import Object, Store
from framework.cluster_node import ClusterNode
from framework.pod_history import Version, assert_never_unready
from framework.pods import Manifest, pod, sleeper

from pkg.apimachinery import clock as clocks

NODE = "clock"
STATIC = f"static-{NODE}"
# Every jump stays ahead of the true time, because no certificate is valid before the true time.
START = timedelta(hours=3)
HOUR = timedelta(hours=1)
EXEC = {"exec": {"command": ["check"]}, "periodSeconds": 1, "initialDelaySeconds": 1}
CONFIG = {
    "nodeStatusUpdateFrequency": "1s",
    "nodeStatusReportFrequency": "1s",
    "nodeLeaseDurationSeconds": 4,
    "syncFrequency": "2s",
    # The back-off must be long enough for the API server to learn of it on a busy machine.
    "crashLoopBackOff": {"maxContainerRestartPeriod": "3s"},
}
# The cluster considers a node lost after the node was silent for this many seconds.
GRACE_PERIOD = 20.0

NewNode = Callable[..., ClusterNode]


class Clock(clocks.RealClock):
    """Hold the node's time of day. libfaketime shows it to the kubelet, and the fake runtime uses it too."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump_to(START)

    def jump_to(self, ahead: timedelta) -> None:
        """Set the clock ahead of the true time by `ahead`."""
        self.ahead = ahead
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(f"{ahead.total_seconds():+.0f}\n")
        unfinished.rename(self._file)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def environment(self) -> dict[str, str]:
        """Return the variables that make a process read the time of day, but no monotonic time, from this clock."""
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }


def library() -> Path:
    found = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
    assert found is not None, "libfaketimeMT.so.1 is missing: run hack/setup faketime, as root on Debian"
    return found


class NodeHistory:
    """Record the node's Ready conditions, from the first one that is True."""

    def __init__(self, store: Store) -> None:
        self._nodes = node_history.NodeHistory(store)

    def stop(self) -> None:
        self._nodes.stop()

    def _seen(self) -> list[dict[str, Any]]:
        found = (each for version in self._nodes.of(NODE) for each in conditions(version) if each["type"] == "Ready")
        return list(itertools.dropwhile(lambda each: each["status"] != "True", found))

    def assert_always_ready(self) -> None:
        seen = self._seen()
        assert seen and [each for each in seen if each["status"] != "True"] == []

    def heartbeat(self) -> str:
        return str(self._seen()[-1]["lastHeartbeatTime"])


def conditions(node: Object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (node.get("status") or {}).get("conditions") or []
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yield a cluster that notices a silent node sooner than the cluster that the other tests share."""
    with Cluster(tmp_path_factory.mktemp("cluster"), Options(node_grace_period=GRACE_PERIOD)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def nodes(cluster: Cluster) -> Iterator[NodeHistory]:
    nodes = NodeHistory(cluster.store)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    return Clock(tmp_path_factory.mktemp("clock") / "ahead")


@pytest.fixture(scope="module")
def node(new_node: NewNode, nodes: NodeHistory, clock: Clock) -> ClusterNode:
    """Return a node with its own clock, a static pod, a pod whose probes pass, and a pod that keeps crashing."""
    node = new_node(NODE, CONFIG)
    node.environment.update(clock.environment())
    node.runtime.clock = clock
    node.write(pod("static", sleeper()))
    node.join()
    node.create(pod("stays", sleeper(readinessProbe=EXEC, livenessProbe=EXEC)))
    node.create(crashing("crashes"))
    node.wait_for_api_running("stays", STATIC)
    wait_for_restarts(node, "crashes", 1)
    return node


def crashing(name: str) -> Manifest:
    made = pod(name, sleeper())
    made["metadata"]["annotations"] = {"fake.cri/main": '{"run_for": 0.2, "exit_code": 1}'}
    return made


def wait_for_restarts(node: ClusterNode, name: str, more: int) -> Version:
    """Wait until the pod's container has restarted `more` more times."""
    found = node.history.latest(name)
    wanted = (found.restarts() if found is not None else 0) + more
    return node.wait_for_api_pod(name, f"restarted {wanted} times", lambda now: now.restarts() >= wanted)


def lease(node: ClusterNode) -> datetime:
    """Return when the lease was last renewed, according to the kubelet's clock."""
    (found,) = (
        each for each in node.cluster.store.list("leases", "kube-node-lease") if each["metadata"]["name"] == NODE
    )
    return datetime.fromisoformat(found["spec"]["renewTime"])


def wait_for_leases(node: ClusterNode, clock: Clock, count: int = 3) -> None:
    """Wait until the kubelet has renewed the lease `count` times, each time with the time that its clock shows."""
    for _ in range(count):
        wait_for_later_lease(node, clock, lease(node))


def wait_for_later_lease(node: ClusterNode, clock: Clock, last: datetime) -> None:
    def renewed() -> bool:
        now = lease(node)
        return now != last and abs(clock.now() - now) < timedelta(minutes=1)

    node.wait_for_condition("the lease is renewed", renewed, timeout=GRACE_PERIOD)


def probes(node: ClusterNode, name: str) -> int:
    return len(node.calls(name, "ExecSync"))


@pytest.mark.parametrize("jump", [HOUR, -2 * HOUR], ids=["forward", "back"])
def test_jump(node: ClusterNode, nodes: NodeHistory, clock: Clock, jump: timedelta) -> None:
    name = "forward" if jump == HOUR else "back"
    ended, deleted, made = f"ended-{name}", f"deleted-{name}", f"made-{name}"
    node.create(pod(ended, sleeper()))
    node.create(pod(deleted, sleeper()))
    uids = {each.name: each.uid for each in node.wait_for_api_running(ended, deleted, "stays", STATIC)}
    untouched = {each: (node.container_ids(each), node.history.of(each)) for each in ("stays", STATIC)}
    assert uids[deleted] in node.pod_directories()
    probed, heartbeat = probes(node, "stays"), nodes.heartbeat()

    node.wait_for_api_pod("crashes", "waits", lambda found: found.state().get("reason") == "CrashLoopBackOff")
    clock.jump_to(clock.ahead + jump)
    node.runtime.end_container(node.container_ids(ended)[0], 3)
    node.delete(deleted)
    node.create(pod(made, sleeper(readinessProbe=EXEC)))

    again = node.wait_for_api_pod(ended, "restarted", lambda found: found.restarts() > 0)
    assert again.restarts() == 1 and again.state(which="lastState")["exitCode"] == 3
    node.wait_until_gone(deleted)
    assert [call.request.timeout for call in node.calls(deleted, "StopContainer")] == [2]
    node.wait_for_api_running(made, ended)
    node.wait_for_api_event(made, "Started")
    wait_for_restarts(node, "crashes", 2)
    node.wait_for_condition("the pod's directory is gone", lambda: uids[deleted] not in node.pod_directories())
    node.wait_for_condition("the probes continue", lambda: probes(node, "stays") >= probed + 6)
    wait_for_leases(node, clock)
    node.wait_for_condition("the heartbeats continue", lambda: nodes.heartbeat() != heartbeat)

    # The kubelet did nothing twice, and it left the running containers alone.
    assert len(node.calls(ended, "StartContainer")) == 2 and len(node.calls(made, "StartContainer")) == 1
    assert {each: (node.container_ids(each), node.history.of(each)) for each in untouched} == untouched
    assert_never_unready(node.history.of("stays"))
    nodes.assert_always_ready()
