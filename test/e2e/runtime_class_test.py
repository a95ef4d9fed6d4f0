"""Test pods with runtime classes: their handler, their overhead, and the error when no handler exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.cluster_client import TIMEOUT, Namespace, waiting_reason
from framework.local_cluster import Environment, LocalCluster
from framework.pods import Manifest, pod, sleeper
from framework.waiting import wait_for
from kubernetes.client import CoreV1Api, NodeV1Api

MEBIBYTE = 1 << 20
RESOURCES = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
NewClass = Callable[[str, str], str]


@pytest.fixture(scope="module")
def classes(environment: Environment) -> NodeV1Api:
    return NodeV1Api(environment.api)


@pytest.fixture(scope="module")
def new_class(classes: NodeV1Api, namespace: Namespace) -> Iterator[NewClass]:
    """Yield a function that creates runtime classes with an overhead. At the end, delete these classes."""
    made: set[str] = set()

    def make(name: str, handler: str) -> str:
        full_name = f"{name}.{namespace.name}"
        overhead = {"podFixed": {"cpu": "50m", "memory": "16Mi"}}
        classes.create_runtime_class({"metadata": {"name": full_name}, "handler": handler, "overhead": overhead})
        made.add(full_name)
        return full_name

    yield make
    for name in made:
        classes.delete_runtime_class(name)


def _pod(name: str, class_name: str, **fields: Any) -> Manifest:
    return pod(name, sleeper(**fields), runtimeClassName=class_name)


def _limit_of_cgroup(local: LocalCluster, qos: str, uid: str) -> int:
    """Return the memory limit of a pod's cgroup, in bytes, for either version of cgroups."""
    path = f"{local.containerd.cgroup_root.strip('/')}/kubepods/{qos}/pod{uid}"
    files = [
        Path("/sys/fs/cgroup", "memory", path, "memory.limit_in_bytes"),
        Path("/sys/fs/cgroup", path, "memory.max"),
    ]
    return int(next(file for file in files if file.exists()).read_text())


@pytest.mark.local
def test_handler_runs_the_pod_and_overhead_counts(
    namespace: Namespace, local: LocalCluster, new_class: NewClass
) -> None:
    namespace.create(_pod("classy", new_class("plain", "runc"), resources=RESOURCES))
    (running,) = namespace.wait_for_running("classy")
    assert running.spec.overhead == {"cpu": "50m", "memory": "16Mi"}
    assert running.status.qos_class == "Burstable"
    (sandbox,) = local.cri.sandboxes("classy")
    assert sandbox.runtime_handler == "runc"
    assert _limit_of_cgroup(local, "burstable", running.metadata.uid) == (64 + 16) * MEBIBYTE


def test_overhead_is_part_of_what_the_node_must_have(
    namespace: Namespace, core: CoreV1Api, new_class: NewClass
) -> None:
    node = core.read_node(namespace.node)
    # The container requests all allocatable memory, so the overhead exceeds it.
    everything = {"requests": {"memory": node.status.allocatable["memory"]}}
    namespace.create(_pod("too-much", new_class("costly", "runc"), resources=everything))
    failed = namespace.wait_for("too-much", "refused", lambda found: found.status.phase == "Failed")
    assert failed.status.reason == "OutOfmemory"


def test_handler_that_the_runtime_does_not_have(namespace: Namespace, new_class: NewClass) -> None:
    namespace.create(_pod("no-handler", new_class("odd", "no-such-handler")))
    namespace.wait_for_event("no-handler", "FailedCreatePodSandBox", ".*no-such-handler.*")
    waiting = namespace.wait_for("no-handler", "waiting", lambda found: waiting_reason(found) != "")
    assert waiting_reason(waiting) == "ContainerCreating"


@pytest.mark.local
def test_class_that_is_not_there_any_more(
    namespace: Namespace, classes: NodeV1Api, local: LocalCluster, new_class: NewClass
) -> None:
    """A pod whose class is gone runs until it needs a new sandbox.

    An event then gives the reason, and the pod runs again once the class is back.
    """
    name = new_class("fleeting", "runc")
    namespace.create(_pod("orphaned", name))
    namespace.wait_for_running("orphaned")
    (before,) = local.cri.sandboxes("orphaned")
    classes.delete_runtime_class(name)
    local.cri.remove_sandbox(before.id)
    not_found = f'runtimeclass\\.node\\.k8s\\.io "{name}" not found'
    namespace.wait_for_event("orphaned", "FailedCreatePodSandBox", f"Failed to create pod sandbox: {not_found}")
    new_class("fleeting", "runc")
    wait_for("a new sandbox", lambda: local.cri.sandboxes("orphaned"), timeout=TIMEOUT)
    namespace.wait_for_running("orphaned")


@pytest.mark.local
def test_node_tells_its_handlers(core: CoreV1Api, namespace: Namespace, local: LocalCluster) -> None:
    """The node's status lists the runtime's handlers, with their features if the runtime reports them."""
    node = core.read_node(namespace.node)
    told = {handler.name: handler.features for handler in node.status.runtime_handlers or []}
    answer = local.cri.runtime.Status(runtimeapi.StatusRequest(), timeout=10)
    assert set(told) == {each.name for each in answer.runtime_handlers}
    for each in answer.runtime_handlers:
        features = told[each.name]
        assert features is not None
        assert bool(features.user_namespaces) == each.features.user_namespaces
        assert bool(features.recursive_read_only_mounts) == each.features.recursive_read_only_mounts
