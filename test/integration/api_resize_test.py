"""Test resizes of running pods: granted, deferred and refused ones, and the effect of a restart of the kubelet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.apiserver.interfaces import Object
from framework.cluster_node import ClusterNode
from framework.pod_history import Version
from framework.pods import Manifest, pod, sleeper

from pkg.apimachinery.api import resource


@pytest.fixture(scope="module")
def one_node(new_node: Callable[..., ClusterNode]) -> ClusterNode:
    node = new_node("resize")
    node.join()
    return node


@pytest.fixture
def node(one_node: ClusterNode) -> Iterator[ClusterNode]:
    """Yield the node, and delete its pods afterwards."""
    yield one_node
    for path in one_node.manifests.iterdir():
        path.unlink()
    for version in one_node.history.present():
        if not version.deleted and "kubernetes.io/config.mirror" not in version.json["metadata"].get("annotations", {}):
            one_node.delete(version.name, 1)
    one_node.wait_for_condition("no pod is left", lambda: not one_node.history.present())


@pytest.fixture
def cpus(node: ClusterNode) -> int:
    """Return the node's allocatable CPU, in thousandths of a CPU."""
    allocatable = (node.api_object() or {})["status"]["allocatable"]["cpu"]
    return resource.parse_quantity(allocatable).milli_value()


def sized(name: str, cpu: str = "100m", memory: str = "10Mi", **fields: Any) -> Manifest:
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": "1Gi"}}
    return pod(name, sleeper(resources=resources, **fields))


def resize(node: ClusterNode, name: str, **amounts: str) -> int:
    """Request other resources for the main container, and return the pod's new generation."""
    container = {"name": "main", "resources": {"requests": amounts}}
    changed = node.patch(name, {"spec": {"containers": [container]}}, "resize")
    return int(changed["metadata"]["generation"])


def has(version: Version, **amounts: str) -> bool:
    """Report whether these are both the allocated and the actuated requests of the main container."""
    status = version.statuses["main"]
    given, actual = status.get("allocatedResources") or {}, (status.get("resources") or {}).get("requests") or {}
    return all(given.get(name) == actual.get(name) == amount for name, amount in amounts.items())


def no_resize(version: Version) -> bool:
    return not {"PodResizePending", "PodResizeInProgress"} & set(version.conditions)


def summary(event: Object) -> tuple[str, Any]:
    """Return the text of a resize event, and the pod's resources in it."""
    text, _, found = event["message"].partition(": ")
    return text, json.loads(found)


def test_resize_in_place(node: ClusterNode) -> None:
    node.create(sized("grows"))
    (before,) = node.wait_for_api_running("grows")
    assert has(before, cpu="100m", memory="10Mi")

    generation = resize(node, "grows", cpu="200m", memory="20Mi")
    after = node.wait_for_api_pod(
        "grows", "is resized", lambda found: has(found, cpu="200m", memory="20Mi") and no_resize(found)
    )

    assert after.container_id() == before.container_id()
    assert after.restarts() == 0
    assert after.status["observedGeneration"] == generation == 2
    assert after.status["allocatedResources"] == {"cpu": "200m", "memory": "20Mi"}
    text, resources = summary(node.wait_for_api_event("grows", "ResizeStarted"))
    assert (text, resources["generation"]) == ("Pod resize started", 2)
    wanted = {"limits": {"memory": "1Gi"}, "requests": {"cpu": "200m", "memory": "20Mi"}}
    assert resources["containers"] == [{"name": "main", "resources": wanted}]
    text, resources = summary(node.wait_for_api_event("grows", "ResizeCompleted"))
    assert (text, resources["generation"]) == ("Pod resize completed", 2)
    updates = node.calls("grows", "UpdateContainerResources")
    assert [call.request.linux.cpu_shares for call in updates] == [102, 204]


def test_resize_that_restarts(node: ClusterNode) -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    node.create(sized("restarts", resizePolicy=policy))
    (before,) = node.wait_for_api_running("restarts")

    resize(node, "restarts", cpu="200m")
    kept = node.wait_for_api_pod("restarts", "has more CPU", lambda found: has(found, cpu="200m") and no_resize(found))
    resize(node, "restarts", memory="20Mi")
    after = node.wait_for_api_pod(
        "restarts", "has more memory", lambda found: has(found, memory="20Mi") and no_resize(found) and found.ready
    )

    assert (kept.container_id(), kept.restarts()) == (before.container_id(), 0)
    assert after.container_id() != before.container_id()
    assert after.restarts() == 1
    killing = node.wait_for_api_event("restarts", "Killing")
    assert killing["message"] == "Container main resize requires restart"


def test_resize_is_put_off_until_there_is_room(node: ClusterNode, cpus: int) -> None:
    node.create(sized("big", f"{cpus - 300}m"))
    node.create(sized("waits"))
    node.wait_for_api_running("big", "waits")

    resize(node, "waits", cpu="400m")
    pending = node.wait_for_api_pod("waits", "waits", lambda found: "PodResizePending" in found.conditions)

    found = pending.conditions["PodResizePending"]
    assert (found["status"], found["reason"], found["observedGeneration"]) == ("True", "Deferred", 2)
    assert found["message"] == (
        f"Node didn't have enough resource: cpu, requested: 400, used: {cpus - 300}, capacity: {cpus}"
    )
    assert has(pending, cpu="100m")
    text, resources = summary(node.wait_for_api_event("waits", "ResizeDeferred"))
    assert (text, resources["error"]) == ("Pod resize OutOfcpu", found["message"])

    node.delete("big")
    node.wait_for_api_pod("waits", "is resized", lambda found: has(found, cpu="400m") and no_resize(found))
    assert node.wait_for_api_running("waits")[0].restarts() == 0


def test_put_off_resize_outlives_the_kubelet(node: ClusterNode, cpus: int) -> None:
    node.create(sized("large", f"{cpus - 300}m"))
    node.create(sized("outlives"))
    node.wait_for_api_running("large", "outlives")
    resize(node, "outlives", cpu="400m")
    before = node.wait_for_api_pod("outlives", "outlives", lambda found: "PodResizePending" in found.conditions)

    node.kill()
    node.join()
    resize(node, "outlives", cpu="450m")
    after = node.wait_for_api_pod(
        "outlives", "still waits", lambda found: found.conditions["PodResizePending"]["observedGeneration"] == 3
    )

    pending = [before.conditions["PodResizePending"], after.conditions["PodResizePending"]]
    assert pending[0]["lastTransitionTime"] == pending[1]["lastTransitionTime"]
    assert has(after, cpu="100m"), "the kubelet has lost the allocated resources"
    resize(node, "outlives", cpu="100m")
    node.wait_for_api_pod("outlives", "no longer waits", no_resize)
    assert not node.calls("outlives", "UpdateContainerResources")


def test_granted_resize_is_put_in_force_by_the_next_kubelet(node: ClusterNode) -> None:
    node.create(sized("half"))
    (before,) = node.wait_for_api_running("half")
    fault = node.runtime.faults.fail("UpdateContainerResources", "no")
    resize(node, "half", cpu="200m")
    failed = node.wait_for_api_pod(
        "half", "fails", lambda found: found.conditions.get("PodResizeInProgress", {}).get("reason") == "Error"
    )
    assert "no" in failed.conditions["PodResizeInProgress"]["message"]
    assert node.wait_for_api_event("half", "ResizeError")
    assert failed.statuses["main"]["allocatedResources"]["cpu"] == "200m"

    node.kill()
    node.runtime.faults.remove(fault)
    node.join()

    after = node.wait_for_api_pod("half", "is resized", lambda found: has(found, cpu="200m") and no_resize(found))
    assert after.container_id() == before.container_id()


def test_resize_of_the_pod_as_a_whole(node: ClusterNode) -> None:
    resources = {"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "200m", "memory": "20Mi"}}
    node.create(pod("whole", sleeper(), resources=resources))
    (before,) = node.wait_for_api_running("whole")
    assert before.status["qosClass"] == "Burstable"
    assert before.status["allocatedResources"] == {"cpu": "100m", "memory": "10Mi"}

    node.patch("whole", {"spec": {"resources": {"limits": {"cpu": "400m"}, "requests": {"cpu": "300m"}}}}, "resize")
    after = node.wait_for_api_pod(
        "whole",
        "is resized",
        lambda found: found.status["allocatedResources"]["cpu"] == "300m" and no_resize(found),
    )

    assert after.container_id() == before.container_id()
    assert after.status["resources"]["limits"]["cpu"] == "400m"
    updates = node.calls("whole", "UpdateContainerResources")
    assert updates[-1].request.linux.cpu_quota == 40000, "a container without a limit does not have its pod's limit"


def test_static_pods_are_not_resized(node: ClusterNode) -> None:
    node.write(sized("fixed"))
    name = f"fixed-{node.node}"
    node.wait_for_api_running(name)
    with pytest.raises(Exception, match="static pods cannot be resized"):
        resize(node, name, cpu="200m")
