"""Test pods that exceed their limits for the node's disk.

The node tests (test/e2e_node) cover a node under pressure. Static pods stay, as all critical pods do, because nothing
would recreate them. A fixture creates all pods, so that the node measures them at the same time.
"""

from __future__ import annotations

from typing import Any

import pytest
from framework.cluster_client import Namespace, conditions, is_running, restarts
from framework.local_cluster import LocalCluster
from framework.pod_ways import Pods
from framework.pods import Manifest, pod, shell

# Each message repeats the Go kubelet's.
OVER = {
    "directory": 'Usage of EmptyDir volume "v" exceeds the limit "4Mi". ',
    "pod": "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ",
    "container": 'Container main exceeded its local ephemeral storage limit "4Mi". ',
}


def writes(mebibytes: int, path: str, name: str = "main", limit: str = "") -> dict[str, Any]:
    script = f"dd if=/dev/zero of={path} bs=1M count={mebibytes}; sleep 100000"
    mounts = [{"name": "v", "mountPath": "/v"}]
    resources = {"limits": {"ephemeral-storage": limit}} if limit else {}
    return shell(script, name, volumeMounts=mounts, resources=resources)


def made(name: str, *containers: dict[str, Any], size: str = "", **spec: Any) -> Manifest:
    volume = {"name": "v", "emptyDir": {"sizeLimit": size} if size else {}}
    return pod(name, *containers, volumes=[volume], **spec)


@pytest.fixture(scope="module", autouse=True)
def pods_of_all_kinds(both_ways: dict[str, Pods], namespace: Namespace) -> None:
    for pods in both_ways.values():
        pods.create(made("directory", writes(8, "/v/file"), size="4Mi"))
        pods.create(made("pod", writes(3, "/file", limit="4Mi"), writes(7, "/v/file", "other", limit="4Mi")))
        pods.create(made("container", writes(8, "/file", limit="4Mi"), writes(0, "/v/file", "other", limit="32Mi")))
        within = writes(2, "/v/file", limit="8Mi"), writes(2, "/file", "other", limit="8Mi")
        pods.create(made("within", *within, size="4Mi"))
    namespace.create(made("critical", writes(8, "/v/file"), size="4Mi", priorityClassName="system-node-critical"))


@pytest.mark.parametrize("name", OVER)
def test_pod_over_its_limit_is_evicted(namespace: Namespace, name: str) -> None:
    evicted = namespace.wait_for(name, "evicted", lambda found: found.status.reason == "Evicted")

    assert evicted.status.phase == "Failed"
    assert evicted.status.message.startswith(OVER[name])
    # The pod caused its own eviction, so the node did not disrupt it.
    assert "DisruptionTarget" not in conditions(evicted)
    event = namespace.wait_for_event(name, "Evicted", OVER[name])
    assert event.type == "Warning" and event.message == evicted.status.message


@pytest.mark.local
@pytest.mark.parametrize("name", OVER)
def test_static_pod_stays(both_ways: dict[str, Pods], local: LocalCluster, name: str) -> None:
    stays(both_ways["static"], local, both_ways["static"].full_name(name), name)


@pytest.mark.local
def test_critical_pod_stays(both_ways: dict[str, Pods], local: LocalCluster) -> None:
    stays(both_ways["api"], local, "critical", "critical")


def stays(pods: Pods, local: LocalCluster, full_name: str, name: str) -> None:
    """Check that the kubelet has noticed the pod's disk usage and does nothing about it."""
    whose = f'pod="{pods.namespace.name}/{full_name}"'
    local.kubelet.wait_for_log("Eviction manager: cannot evict a critical pod", whose)
    found = pods.wait_for(name, "running", is_running)
    assert all(restarts(found, each.name) == 0 for each in found.spec.containers)
    assert not [each for each in pods.events_of(name) if each.reason == "Evicted"]


def test_pod_within_its_limits_stays(pods: Pods, namespace: Namespace) -> None:
    for name in OVER:
        namespace.wait_for(name, "evicted", lambda found: found.status.reason == "Evicted")
    found = pods.wait_for("within", "running", is_running)
    assert restarts(found) == 0
    assert not [each for each in pods.events_of("within") if each.reason == "Evicted"]
