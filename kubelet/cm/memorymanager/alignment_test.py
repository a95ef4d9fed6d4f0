"""Test that CPUs and memory come from the same NUMA nodes, with both managers and the topology manager.

The machine is a recorded one.

Go: none; Go's managers run together only in test/e2e_node, on machines with several NUMA nodes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubelet import cadvisor, lifecycle
from kubelet.apis import config as kubeletconfig
from kubelet.cadvisor import sysinfo
from kubelet.cadvisor.testing import build_machine
from kubelet.cm import cpumanager, memorymanager, topologymanager
from kubelet.cm.containermap import ContainerMap
from kubelet.cm.memorymanager.testing import GB, pod
from kubelet.config.testing import FakeSourcesReady
from kubelet.status.testing import FakePodStatusProvider
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery.api.resource import must_parse
from pkg.utils import cpuset


@pytest.fixture(scope="module")
def machine() -> Iterator[cadvisor.MachineInfo]:
    """Yield a machine with two sockets of two nodes, each with 20 CPUs and about 370 GiB."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        nodes, cpus = sysinfo.get_nodes_info(build_machine("intel_two_sockets_four_nodes", Path(directory)))
    yield cadvisor.MachineInfo(num_cores=cpus, memory_capacity=sum(node.memory for node in nodes), topology=nodes)


class Node:
    """Connect the managers as the container manager does. Two CPUs and 1 GiB of node 0 are reserved."""

    def __init__(self, machine: cadvisor.MachineInfo, directory: Path, policy: str, scope: str = "container") -> None:
        self._machine = machine
        reserved = {"cpu": must_parse("2"), "memory": must_parse("1Gi")}
        memory = [kubeletconfig.MemoryReservation(numa_node=0, limits={"memory": must_parse("1Gi")})]
        self.topology = topologymanager.Manager(machine.topology, policy, scope, {})
        self.cpu = cpumanager.Manager(
            "static", {}, 10.0, machine, cpuset.new(0, 40), reserved, str(directory), self.topology
        )
        self.memory = memorymanager.Manager("Static", machine, reserved, memory, str(directory), self.topology)
        self.pods: list[v1.Pod] = []
        self.ctx, self.stop = golang.with_cancel(golang.background())
        rest: Any = None
        sources = FakeSourcesReady()
        statuses: Any = FakePodStatusProvider()
        for manager in (self.cpu, self.memory):
            self.topology.add_hint_provider(manager)
            manager.start(self.ctx, lambda: self.pods, lambda uid: False, sources, statuses, rest, ContainerMap())

    def admit(self, asking: v1.Pod) -> lifecycle.PodAdmitResult:
        # As in the kubelet, a pod is already active during its admission.
        self.pods.append(asking)
        result = self.topology.admit(lifecycle.PodAdmitAttributes(asking, self.pods[:-1]))
        if not result.admit:
            self.pods.remove(asking)
        return result

    def nodes(self, asking: v1.Pod, name: str) -> tuple[set[int], set[int]]:
        """Return the nodes of a container's CPUs and the nodes of its memory."""
        cpus = self.cpu.get_cpu_affinity(asking.metadata.uid, name)
        of_cpus = {node.id for node in self._machine.topology for core in node.cores if cpus & frozenset(core.threads)}
        blocks = self.memory.get_memory(asking.metadata.uid, name)
        return of_cpus, {node for block in blocks for node in block.numa_affinity}


def guaranteed(uid: str, *wishes: tuple[int, int]) -> v1.Pod:
    """Return a pod whose containers c0, c1, … request these numbers of CPUs and GiB."""
    containers = []
    for at, (cpus, gib) in enumerate(wishes):
        amounts = {"cpu": must_parse(str(cpus)), "memory": must_parse(f"{gib}Gi")}
        containers.append(
            v1.Container(name=f"c{at}", resources=v1.ResourceRequirements(requests=amounts, limits=amounts))
        )
    return pod(uid, *containers)


@pytest.fixture
def node(request: pytest.FixtureRequest, machine: cadvisor.MachineInfo, tmp_path: Path) -> Iterator[Node]:
    made = Node(machine, tmp_path, *request.param)
    yield made
    made.stop()


_SINGLE = "single-numa-node"


@pytest.mark.parametrize("node", [(_SINGLE,), (_SINGLE, "pod"), ("restricted",), ("best-effort",)], indirect=True)
def test_processors_and_memory_are_of_one_node(node: Node) -> None:
    """A container's CPUs and memory come from one node, however full the nodes are."""
    for number in range(4):
        asking = guaranteed(f"pod{number}", (16, 300))
        assert node.admit(asking).admit
        of_cpus, of_memory = node.nodes(asking, "c0")
        assert of_cpus == of_memory
        assert len(of_cpus) == 1
    asking = guaranteed("more", (16, 300))
    refused = node.admit(asking)
    assert not refused.admit


@pytest.mark.parametrize("node", [(_SINGLE,), ("restricted",)], indirect=True)
def test_memory_that_is_left_on_other_nodes_than_processors(node: Node) -> None:
    for name, wish in {"a": (1, 360), "b": (1, 360), "c": (20, 1), "d": (20, 1)}.items():
        # The pods take the memory of the first two nodes, and the CPUs of the others.
        assert node.admit(guaranteed(name, wish)).admit
    refused = node.admit(guaranteed("wants-both", (10, 100)))
    assert (refused.admit, refused.reason) == (False, "TopologyAffinityError")
    assert refused.message == "Resources cannot be allocated with Topology locality"
    assert node.memory.get_memory("wants-both", "c0") == []


@pytest.mark.parametrize("node", [("restricted",)], indirect=True)
def test_as_few_nodes_as_an_idle_machine_needs(node: Node) -> None:
    asking = guaranteed("large", (30, 500))
    assert node.admit(asking).admit
    of_cpus, of_memory = node.nodes(asking, "c0")
    assert of_cpus <= of_memory
    assert len(of_memory) == 2
    assert sum(block.size for block in node.memory.get_memory("large", "c0")) == 500 * GB


@pytest.mark.parametrize("node", [(_SINGLE, "pod")], indirect=True)
def test_all_containers_of_a_pod_are_on_one_node(node: Node) -> None:
    asking = guaranteed("many", (4, 50), (4, 50), (6, 100))
    assert node.admit(asking).admit
    (first, *others) = [node.nodes(asking, f"c{at}") for at in range(3)]
    assert first[0] == first[1]
    assert all(other == first for other in others)
    assert node.admit(guaranteed("too-large", (10, 10), (10, 10), (10, 10))).reason == "TopologyAffinityError"


@pytest.mark.parametrize("node", [(_SINGLE, "container")], indirect=True)
def test_what_was_given_before_a_container_was_refused_comes_free(node: Node) -> None:
    """The next pod's admission releases what a pod got before one of its containers was rejected."""
    refused = node.admit(guaranteed("half", (10, 300), (30, 1)))
    assert refused.reason == "TopologyAffinityError"
    assert node.memory.get_memory("half", "c0") != []
    assert node.admit(guaranteed("next", (2, 1))).admit
    assert node.memory.get_memory("half", "c0") == []
    assert not node.cpu.get_cpu_affinity("half", "c0") & node.cpu.get_cpu_affinity("next", "c0")
