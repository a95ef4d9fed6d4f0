"""Test that a kubelet's restart, with or without an API server, disturbs neither pods nor their statuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from framework.apiserver.cluster import Cluster
from framework.cluster_node import ClusterNode
from framework.pod_history import PodHistory, Version, assert_history_monotonic, assert_never_unready
from framework.pods import Manifest, pod, sleeper

PODS = 30
NAMES = [f"pod-{number}" for number in range(PODS)]
STATIC = [f"static-{number}" for number in range(3)]
MIRRORS = [f"{name}-restart" for name in STATIC]
EXEC = {"exec": {"command": ["check"]}, "periodSeconds": 1}

NewNode = Callable[..., ClusterNode]


def manifest(number: int) -> Manifest:
    """Return a pod of one of three kinds: without probes, with all probes, or with a failing readiness probe."""
    probes: dict[str, Any] = {}
    annotations: dict[str, str] = {}
    match number % 3:
        case 1:
            probes = {"readinessProbe": EXEC, "livenessProbe": EXEC, "startupProbe": EXEC}
        case 2:
            probes = {"readinessProbe": EXEC}
            annotations = {"fake.cri/main": '{"exec_exit_code": 1}'}
    made = pod(NAMES[number], sleeper(**probes))
    made["metadata"]["annotations"] = annotations
    return made


def is_to_be_ready(name: str) -> bool:
    return int(name.rpartition("-")[2]) % 3 != 2


@pytest.fixture(scope="module")
def node(new_node: NewNode) -> ClusterNode:
    """Return a node with thirty API pods and three static pods. Each test leaves it in this state."""
    node = new_node("restart", {"maxPods": 200})
    for name in STATIC:
        node.write(pod(name, sleeper()))
    node.join()
    for number in range(PODS):
        node.create(manifest(number))
    node.wait_for_api_running(*filter(is_to_be_ready, NAMES), *MIRRORS)
    for name in NAMES:
        node.wait_for_api_pod(name, "runs", lambda found: found.running or found.statuses)
        if not is_to_be_ready(name):
            wait_for_failed_probe(node, name)
    return node


def wait_for_failed_probe(node: ClusterNode, name: str) -> None:
    node.wait_for_api_event(name, "Unhealthy", "Readiness probe failed")


class Before:
    """Record the containers and statuses of all pods before the kubelet is killed."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._names = [*NAMES, *MIRRORS]
        node.wait_until_containers_are_old()
        self._version = max(each.version for each in node.history.all())
        self._containers = {name: node.container_ids(name) for name in self._names}
        self._pods = {name: self._latest(name) for name in self._names}
        assert all(len(found) == 1 for found in self._containers.values())

    def _latest(self, name: str) -> Version:
        found = self._node.history.latest(name)
        assert found is not None, f"there is no pod {name}"
        return found

    def changes(self, name: str) -> list[Version]:
        """List the versions of a pod that the API server has seen since the kubelet was killed."""
        return [each for each in self._node.history.of(name) if each.version > self._version]

    def assert_untouched(self) -> None:
        """Check that no container was restarted, that no pod's readiness changed, and that no mirror pod changed."""
        self.assert_pods_untouched()
        for name in MIRRORS:
            assert self.changes(name) == []
        assert_history_monotonic(self._node.history.all())

    def assert_pods_untouched(self) -> None:
        """Check that no pod was disturbed, as `assert_untouched` does, but allow changed conditions in mirror pods.

        Without the API server the new kubelet cannot read the former conditions of its static pods.
        """
        assert {name: self._node.container_ids(name) for name in self._names} == self._containers
        for name, before in self._pods.items():
            for version in self.changes(name):
                assert version.ready == before.ready, name
                assert version.statuses == before.statuses, name
                if name not in MIRRORS:
                    assert version.conditions["Ready"] == before.conditions["Ready"], name
                    assert version.conditions["ContainersReady"] == before.conditions["ContainersReady"], name
            assert self._latest(name).uid == before.uid
        assert_history_monotonic(each for each in self._node.history.all() if each.name not in MIRRORS)
        for name in filter(is_to_be_ready, NAMES):
            assert_never_unready(self._node.history.of(name))


def wait_until_probed_again(node: ClusterNode, since: int) -> None:
    """Wait until a new kubelet has probed every pod several times, including pods whose probes fail."""

    def look() -> bool:
        probed: dict[str, int] = {}
        for call in node.runtime.recorder.calls(["ExecSync"])[since:]:
            probed[call.request.container_id] = probed.get(call.request.container_id, 0) + 1
        wanted = {node.container_ids(name)[0] for number, name in enumerate(NAMES) if number % 3}
        return all(probed.get(each, 0) > 3 for each in wanted)

    node.wait_for_condition("all pods have been probed again", look)


def probes(node: ClusterNode) -> int:
    return len(node.runtime.recorder.calls(["ExecSync"]))


def test_restart_with_api_server(node: ClusterNode, cluster: Cluster) -> None:
    """A restarted kubelet terminates pods that were deleted meanwhile, in their grace period, and starts new pods."""
    node.create(pod("deleted", sleeper()))
    node.create(pod("forced", sleeper()))
    node.wait_for_api_running("deleted", "forced")
    before = Before(node)

    node.kill()
    node.delete("deleted")
    node.delete("forced", grace=0)
    node.create(pod("made", sleeper()))
    probed = probes(node)
    node.join()

    node.wait_until_gone("deleted")
    node.wait_for_condition("pod forced has ended", lambda: not node.container_ids("forced"))
    node.wait_for_api_running("made")
    wait_until_probed_again(node, probed)
    before.assert_untouched()
    (stopped,) = node.calls("deleted", "StopContainer")
    assert stopped.request.timeout == 2
    node.delete("made")
    node.wait_until_gone("made")


def test_restart_without_api_server(node: ClusterNode, cluster: Cluster, history: PodHistory) -> None:
    """While the API server is away, the kubelet runs static pods, even a new one, and leaves API pods alone."""
    node.create(pod("deleted-unseen", sleeper()))
    node.create(pod("dies-unseen", sleeper()))
    node.wait_for_api_running("deleted-unseen", "dies-unseen")
    before = Before(node)
    (died,) = node.container_ids("dies-unseen")
    orphans = node.container_ids("deleted-unseen")

    node.kill()
    with cluster.faults.refuse():
        node.delete("deleted-unseen")
        node.create(pod("made-unseen", sleeper()))
        node.runtime.end_container(died, 3)
        node.write(pod("static-new", sleeper()))
        probed = probes(node)
        node.spawn()
        node.wait_for_condition("the new static pod runs", lambda: node.container_ids("static-new-restart"))
        node.remove("static-new")
        node.wait_for_condition("the new static pod ended", lambda: not node.container_ids("static-new-restart"))
        assert node.container_ids("deleted-unseen") == orphans

    node.wait_until_gone("deleted-unseen", timeout=60)
    node.wait_for_api_running("made-unseen", timeout=60)
    restarted = node.wait_for_api_pod("dies-unseen", "restarted", lambda found: found.restarts() == 1 and found.ready)
    assert restarted.state(which="lastState")["exitCode"] == 3
    wait_until_probed_again(node, probed)
    before.assert_pods_untouched()
