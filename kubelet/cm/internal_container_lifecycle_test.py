"""Test what the resource managers do at the steps of a container's life."""

from __future__ import annotations

from typing import Any, cast

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cm.internal_container_lifecycle import InternalContainerLifecycleImpl
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.utils import cpuset

POD = v1.Pod(metadata=metav1.ObjectMeta(uid=types.UID("u")))
CONTAINER = v1.Container(name="c")


class Managers:
    """Imitate all three managers."""

    def __init__(self, cpus: str = "", nodes: set[int] | None = None) -> None:
        self.cpus, self.nodes = cpuset.parse(cpus), nodes or set()
        self.calls: list[tuple[str, ...]] = []

    def get_cpu_affinity(self, pod_uid: str, container_name: str) -> cpuset.CPUSet:
        assert (pod_uid, container_name) == ("u", "c")
        return self.cpus

    def get_memory_numa_nodes(self, pod: v1.Pod, container: v1.Container) -> set[int]:
        return self.nodes

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        self.calls.append(("add", pod.metadata.uid, container.name, container_id))

    def remove_container(self, container_id: str) -> None:
        self.calls.append(("remove", container_id))


@pytest.mark.parametrize(
    ("cpus", "nodes", "expected"),
    [("", set(), ("", "")), ("0-1,4", set(), ("0-1,4", "")), ("3", {2, 0, 10}, ("3", "0,2,10"))],
)
def test_container_is_pinned_to_what_it_was_given(cpus: str, nodes: set[int], expected: tuple[str, str]) -> None:
    managers = cast("Any", Managers(cpus, nodes))
    config = runtimeapi.ContainerConfig()
    InternalContainerLifecycleImpl(managers, managers, managers).pre_create_container(POD, CONTAINER, config)
    resources = config.linux.resources
    assert (resources.cpuset_cpus, resources.cpuset_mems) == expected


def test_managers_hear_of_containers() -> None:
    cpu, memory, topology = Managers(), Managers(), Managers()
    lifecycle = InternalContainerLifecycleImpl(cast("Any", cpu), cast("Any", memory), cast("Any", topology))
    lifecycle.pre_start_container(POD, CONTAINER, "id")
    lifecycle.post_stop_container("id")
    added = ("add", "u", "c", "id")
    assert (cpu.calls, memory.calls) == ([added], [added])
    assert topology.calls == [added, ("remove", "id")]


def test_without_managers_nothing_happens() -> None:
    lifecycle, config = InternalContainerLifecycleImpl(None, None, None), runtimeapi.ContainerConfig()
    lifecycle.pre_create_container(POD, CONTAINER, config)
    lifecycle.pre_start_container(POD, CONTAINER, "id")
    lifecycle.post_stop_container("id")
    assert config == runtimeapi.ContainerConfig()
