"""Test the CPU topology.

Go: pkg/kubelet/cm/cpumanager/topology/topology_test.go, alignment_test.go
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm.cpumanager.topology import Alignment, Allocation, CPUDetails, CPUInfo, CPUTopology, discover
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet


def _core(number: int, *threads: int, socket: int = 0, uncore: int | None = None) -> cadvisorapi.Core:
    caches = () if uncore is None else (cadvisorapi.Cache(id=uncore),)
    return cadvisorapi.Core(id=number, threads=threads, socket_id=socket, uncore_caches=caches)


def test_discover() -> None:
    """Core IDs that are unique only in their socket become unique on the machine.

    The machine has two nodes with a socket each, and only one of them reports its caches.
    """
    nodes = (
        cadvisorapi.Node(id=0, cores=(_core(0, 4, 0, uncore=7), _core(1, 1, 5, uncore=8))),
        cadvisorapi.Node(id=1, cores=(_core(0, 2, 6, socket=1), _core(1, 3, 7, socket=1))),
    )
    got = discover(cadvisorapi.MachineInfo(num_cores=8, memory_capacity=0, num_sockets=2, topology=nodes))
    assert got == CPUTopology(
        num_cpus=8,
        num_cores=4,
        num_uncore_cache=3,
        num_sockets=2,
        num_numa_nodes=2,
        cpu_details=CPUDetails(
            {
                0: CPUInfo(0, 0, 0, 7),
                1: CPUInfo(0, 0, 1, 8),
                2: CPUInfo(1, 1, 2, 1),
                3: CPUInfo(1, 1, 3, 1),
                4: CPUInfo(0, 0, 0, 7),
                5: CPUInfo(0, 0, 1, 8),
                6: CPUInfo(1, 1, 2, 1),
                7: CPUInfo(1, 1, 3, 1),
            }
        ),
    )
    assert (got.cpus_per_core(), got.cpus_per_socket(), got.cpus_per_uncore()) == (2, 4, 2)
    assert (got.cpu_core_id(5), got.cpu_numa_node_id(6)) == (1, 1)
    with pytest.raises(ValueError, match="unknown CPU ID: 8"):
        got.cpu_core_id(8)


@pytest.mark.parametrize(
    ("num_cores", "threads", "want"),
    [
        (0, (0,), "could not detect number of cpus"),
        (1, (), "no cpus provided"),
        (1, (0, 0), "cpus provided are not unique"),
    ],
)
def test_discover_fails(num_cores: int, threads: tuple[int, ...], want: str) -> None:
    nodes = (cadvisorapi.Node(id=0, cores=(_core(0, *threads),)),)
    with pytest.raises(ValueError, match=want):
        discover(cadvisorapi.MachineInfo(num_cores=num_cores, memory_capacity=0, topology=nodes))


def test_an_empty_topology_divides_nothing() -> None:
    nothing = CPUTopology()
    assert (nothing.cpus_per_core(), nothing.cpus_per_socket(), nothing.cpus_per_uncore()) == (0, 0, 0)


# Nodes 0 and 1 are in socket 0, node 2 in socket 1. Each CPU is a core, except that 0 and 4 share one.
_DETAILS = CPUDetails(
    {
        0: CPUInfo(0, 0, 0, 5),
        1: CPUInfo(0, 0, 1, 5),
        2: CPUInfo(1, 0, 2, 5),
        3: CPUInfo(2, 1, 3, 6),
        4: CPUInfo(0, 0, 0, 5),
    }
)


@pytest.mark.parametrize(
    ("question", "ids", "want"),
    [
        (CPUDetails.numa_nodes_in_sockets, [0], "0-1"),
        (CPUDetails.numa_nodes_in_sockets, [0, 1], "0-2"),
        (CPUDetails.cpus_in_sockets, [0], "0-2,4"),
        (CPUDetails.cpus_in_sockets, [1, 7], "3"),
        (CPUDetails.sockets_in_numa_nodes, [0, 1], "0"),
        (CPUDetails.sockets_in_numa_nodes, [1, 2], "0-1"),
        (CPUDetails.cores_in_numa_nodes, [0], "0-1"),
        (CPUDetails.cores_in_sockets, [0], "0-2"),
        (CPUDetails.cpus_in_numa_nodes, [0, 2], "0-1,3-4"),
        (CPUDetails.cpus_in_cores, [0], "0,4"),
        (CPUDetails.cpus_in_uncore_caches, [5], "0-2,4"),
        (CPUDetails.uncore_in_numa_nodes, [1, 2], "5-6"),
        (CPUDetails.cpus_in_cores, [], ""),
    ],
)
def test_details(question: Callable[..., CPUSet], ids: list[int], want: str) -> None:
    assert str(question(_DETAILS, *ids)) == want


def test_all_of_a_kind() -> None:
    kinds = (_DETAILS.numa_nodes(), _DETAILS.sockets(), _DETAILS.cores(), _DETAILS.uncore_caches(), _DETAILS.cpus())
    assert [str(kind) for kind in kinds] == ["0-2", "0-1", "0-3", "5-6", "0-4"]
    assert _DETAILS.keep_only(cpuset.new(3, 9)) == {3: CPUInfo(2, 1, 3, 6)}


@pytest.mark.parametrize(("number", "want"), [(0, ""), (2, "0-1"), (3, "0-2"), (9, "0-2")])
def test_cores_needed_in_uncore_cache(number: int, want: str) -> None:
    assert str(_DETAILS.cores_needed_in_uncore_cache(number, 5)) == want


@pytest.mark.parametrize(
    ("cpus", "aligned"), [([], True), ([9], True), ([0, 1, 4], True), ([0, 3], False), ([0, 9], False), ([8, 9], False)]
)
def test_check_alignment(cpus: list[int], aligned: bool) -> None:
    assert CPUTopology(cpu_details=_DETAILS).check_alignment(cpuset.new(*cpus)) == Alignment(uncore_cache=aligned)


def test_an_allocation_as_text() -> None:
    assert str(Allocation(cpuset.new(0, 1), Alignment(uncore_cache=True))) == "0-1 aligned=<uncore:true>"
