"""Test how a container's CPUs are chosen.

Go: pkg/kubelet/cm/cpumanager/cpu_assignment_test.go
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from kubelet.cm.cpumanager.cpu_assignment import (
    CPUAccumulator,
    CPUSortingStrategy,
    NotEnoughCPUsError,
    mean,
    standard_deviation,
    take_by_topology_numa_distributed,
    take_by_topology_numa_packed,
)
from kubelet.cm.cpumanager.testing import topology
from kubelet.cm.cpumanager.topology import CPUDetails, CPUInfo, CPUTopology
from pkg.utils import cpuset

_PACKED, _SPREAD = CPUSortingStrategy.PACKED, CPUSortingStrategy.SPREAD

# The columns are the machine, the free CPUs, and the completely free units in the order in which they are taken.
_FREE_SOCKETS = [
    ("single_socket_ht", "0-7", [0]),
    ("single_socket_ht", "1-7", []),
    ("dual_socket_ht", "0-11", [0, 1]),
    ("dual_socket_ht", "0-9,11", [1]),
    ("dual_socket_ht", "0,2-9,11", []),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", [0, 1]),
    ("dual_socket_multi_numa_per_socket_ht", "1-79", [1]),
    ("dual_socket_multi_numa_per_socket_ht", "1-78", []),
    ("multi_socket_dual_socket_per_numa_ht", "0-79", [0, 1, 2, 3]),
    ("multi_socket_dual_socket_per_numa_ht", "0-19,21-79", [0, 1, 3]),
    ("multi_socket_dual_socket_per_numa_ht", "0-59,61-78", [0, 1]),
    ("multi_socket_dual_socket_per_numa_ht", "1-19,21-38,41-78", [1]),
    ("multi_socket_dual_socket_per_numa_ht", "0-40,42-49,51-68,71-79", []),
]
_FREE_NUMA_NODES = [
    ("single_socket_ht", "0-7", [0]),
    ("single_socket_ht", "1-7", []),
    ("dual_socket_ht", "0-11", [0, 1]),
    ("dual_socket_ht", "0-9,11", [1]),
    ("dual_socket_ht", "0,2-9,11", []),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", [0, 1, 2, 3]),
    ("dual_socket_multi_numa_per_socket_ht", "1-79", [1, 2, 3]),
    ("dual_socket_multi_numa_per_socket_ht", "1-9,11-79", [2, 3]),
    ("dual_socket_multi_numa_per_socket_ht", "1-9,11-59,61-79", [3]),
    ("dual_socket_multi_numa_per_socket_ht", "1-9,11-59,61-78", []),
    ("multi_socket_dual_socket_per_numa_ht", "0-79", [0, 1]),
    ("multi_socket_dual_socket_per_numa_ht", "0-9,11-79", [1]),
    ("multi_socket_dual_socket_per_numa_ht", "0-9,11-59,61-79", []),
]
_FREE_CORES = [
    ("single_socket_ht", "0-7", [0, 1, 2, 3]),
    ("single_socket_ht", "0-2,4-6", [0, 1, 2]),
    ("single_socket_ht", "0-6", [0, 1, 2]),
    ("single_socket_ht", "", []),
    ("single_socket_ht", "0-3", []),
    ("dual_socket_ht", "0-11", [0, 2, 4, 1, 3, 5]),
    ("dual_socket_ht", "1-5,7-11", [2, 4, 1, 3, 5]),
    ("dual_socket_ht", "2-5,8-11", [2, 4, 3, 5]),
]
_FREE_CPUS = [
    ("single_socket_ht", "0-7", [0, 4, 1, 5, 2, 6, 3, 7]),
    ("single_socket_ht", "3-7", [4, 5, 6, 3, 7]),
    ("dual_socket_ht", "0-11", [0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    ("dual_socket_ht", "1-11", [6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    ("dual_socket_ht", "1-5,7-11", [2, 8, 4, 10, 1, 7, 3, 9, 5, 11]),
    ("triple_socket_ht", "0-3,6-13", [12, 13, 0, 1, 2, 3, 6, 7, 8, 9, 10, 11]),
]


def _accumulator(machine: str, available: str, number: int = 0) -> CPUAccumulator:
    return CPUAccumulator(topology(machine), cpuset.parse(available), number, _PACKED)


@pytest.mark.parametrize(("machine", "available", "want"), _FREE_SOCKETS)
def test_free_sockets(machine: str, available: str, want: Sequence[int]) -> None:
    assert sorted(_accumulator(machine, available).free_sockets()) == want


@pytest.mark.parametrize(("machine", "available", "want"), _FREE_NUMA_NODES)
def test_free_numa_nodes(machine: str, available: str, want: Sequence[int]) -> None:
    assert _accumulator(machine, available).free_numa_nodes() == want


@pytest.mark.parametrize(("machine", "available", "want"), _FREE_CORES)
def test_free_cores(machine: str, available: str, want: Sequence[int]) -> None:
    assert _accumulator(machine, available).free_cores() == want


@pytest.mark.parametrize(("machine", "available", "want"), _FREE_CPUS)
def test_free_cpus(machine: str, available: str, want: Sequence[int]) -> None:
    assert _accumulator(machine, available).free_cpus() == want


@pytest.mark.parametrize(
    ("available", "taken", "number", "satisfied", "failed"),
    [
        ("0-7", [], 1, False, False),
        ("", [], 1, False, True),
        ("0-7", [0], 1, True, False),
        ("0-7", [0], 2, False, False),
        ("0-2", [0, 1], 4, False, True),
        ("0-7", list(range(8)), 8, True, False),
    ],
)
def test_take(available: str, taken: Sequence[int], number: int, satisfied: bool, failed: bool) -> None:
    acc = _accumulator("single_socket_ht", available, number)
    for cpu in taken:
        acc.take(cpuset.new(cpu))
    assert (acc.is_satisfied(), acc.is_failed()) == (satisfied, failed)
    assert acc.result == cpuset.new(*taken)
    assert acc.details.cpus() == cpuset.parse(available) - cpuset.new(*taken)
    assert acc.num_cpus_needed == number - len(taken)


# The columns are the machine, whether caches are preferred, the free CPUs, the requested number, and the chosen CPUs.
_TAKE_PACKED = [
    ("single_socket_ht", False, "0-7", 0, ""),
    ("single_socket_ht", False, "0-7", 1, "0"),
    ("single_socket_ht", False, "1,3,5-7", 1, "6"),
    ("single_socket_ht", False, "0-7", 2, "0,4"),
    ("single_socket_ht", False, "0-7", 8, "0-7"),
    ("single_socket_ht", False, "0-3,6", 2, "2,6"),
    ("dual_socket_ht", False, "0-11", 6, "0,2,4,6,8,10"),
    ("dual_socket_multi_numa_per_socket_ht", False, "0-79", 40, "0-19,40-59"),
    ("dual_socket_multi_numa_per_socket_ht", False, "0-79", 20, "0-9,40-49"),
    ("dual_socket_multi_numa_per_socket_ht", False, "10-39,50-79", 20, "10-19,50-59"),
    ("dual_socket_multi_numa_per_socket_ht", False, "0-79", 60, "0-29,40-69"),
    ("dual_socket_multi_numa_per_socket_ht", False, "1-39,41-79", 60, "10-39,50-79"),
    ("dual_socket_ht", False, "1-5,7-11", 1, "2"),
    ("dual_socket_ht", False, "0-11", 8, "0-2,4,6-8,10"),
    ("dual_socket_multi_numa_per_socket_ht", False, "0-79", 64, "0-31,40-71"),
    ("uncore_single_socket_no_smt", True, "1-15", 10, "1-2,4-11"),
    ("dual_socket_ht", True, "1-5,7-11", 1, "1"),
    ("uncore_dual_socket_no_smt", True, "0-15", 4, "0-3"),
    ("uncore_dual_socket_no_smt", True, "2-15", 6, "2-7"),
    ("uncore_dual_socket_no_smt", True, "8-15", 4, "8-11"),
    ("uncore_single_socket_multi_numa", True, "3-8,12", 2, "4-5"),
    ("uncore_single_socket_smt", True, "2-7,10-15", 6, "4-6,12-14"),
    ("uncore_single_socket_smt", True, "1-7,9-15", 10, "1,4-7,9,12-15"),
]


@pytest.mark.parametrize(("machine", "by_cache", "available", "number", "want"), _TAKE_PACKED)
def test_take_by_topology_numa_packed(machine: str, by_cache: bool, available: str, number: int, want: str) -> None:
    free = cpuset.parse(available)
    assert str(take_by_topology_numa_packed(topology(machine), free, number, _PACKED, by_cache)) == want


# The columns are the machine, the free CPUs, the requested number, and the chosen CPUs.
_TAKE_SPREAD = [
    ("single_socket_ht", "0-7", 3, "0-2"),
    ("dual_socket_ht", "0-11", 2, "0,2"),
    ("dual_socket_ht", "0-11", 3, "0,2,4"),
    ("dual_socket_ht", "0-11", 6, "0,2,4,6,8,10"),
    ("dual_socket_ht", "0-11", 8, "0-4,6,8,10"),
    ("dual_socket_no_ht", "0-7", 2, "0-1"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 8, "0-7"),
    ("quad_socket_four_way_ht", "0-287", 12, "0-2,9-10,13-14,21-22,25-26,33"),
]


@pytest.mark.parametrize(("machine", "available", "number", "want"), _TAKE_SPREAD)
def test_take_by_topology_spread(machine: str, available: str, number: int, want: str) -> None:
    free = cpuset.parse(available)
    assert str(take_by_topology_numa_packed(topology(machine), free, number, _SPREAD, False)) == want


# The columns are the machine, the free CPUs, the requested number, the group size, and the chosen CPUs.
_TAKE_DISTRIBUTED = [
    ("single_socket_ht", "0-7", 0, 1, ""),
    ("single_socket_ht", "0-7", 1, 1, "0"),
    ("single_socket_ht", "1,3,5-7", 1, 1, "6"),
    ("single_socket_ht", "0-7", 2, 1, "0,4"),
    ("single_socket_ht", "0-7", 8, 1, "0-7"),
    ("single_socket_ht", "0-3,6", 2, 1, "2,6"),
    ("dual_socket_ht", "0-11", 6, 1, "0,2,4,6,8,10"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 40, 1, "0-19,40-59"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 20, 1, "0-9,40-49"),
    ("dual_socket_multi_numa_per_socket_ht", "10-39,50-79", 20, 1, "10-19,50-59"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 60, 1, "0-29,40-69"),
    ("dual_socket_multi_numa_per_socket_ht", "1-39,41-79", 60, 1, "10-39,50-79"),
    ("dual_socket_ht", "0-11", 8, 1, "0-3,6-9"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 64, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-67,70-77"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 48, 1, "0-7,10-17,20-27,40-47,50-57,60-67"),
    ("dual_socket_multi_numa_per_socket_ht", "1-29,32-39,41-69,72-79", 48, 1, "1-8,10-17,20-27,41-48,50-57,60-67"),
    ("dual_socket_multi_numa_per_socket_ht", "2-29,31-39,42-69,71-79", 48, 1, "10-17,20-27,31-38,50-57,60-67,71-78"),
    (
        "dual_socket_multi_numa_per_socket_ht",
        "0-2,10-12,20-22,30-32,40-41,50-51,60-61,70-71",
        16,
        1,
        "0-1,10-11,20-21,30-31,40-41,50-51,60-61,70-71",
    ),
    ("dual_socket_ht", "1-5,7-11", 1, 1, "1"),
    ("dual_socket_ht", "1-5,7-11", 1, 2, "2"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 26, 1, "0-6,10-16,40-45,50-55"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 26, 2, "0-6,10-15,40-46,50-55"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 62, 1, "0-7,10-17,20-27,30-37,40-47,50-57,60-66,70-76"),
    ("dual_socket_multi_numa_per_socket_ht", "0-79", 62, 2, "0-7,10-17,20-27,30-36,40-47,50-57,60-67,70-76"),
    (
        "dual_socket_multi_numa_per_socket_ht",
        "0-8,10-18,20-48,50-58,60-79",
        62,
        1,
        "0-7,10-17,20-27,30-37,40-46,50-56,60-67,70-77",
    ),
    (
        "dual_socket_multi_numa_per_socket_ht",
        "0-8,10-18,20-48,50-58,60-79",
        62,
        2,
        "0-7,10-16,20-27,30-37,40-47,50-56,60-67,70-77",
    ),
    (
        "dual_socket_multi_numa_per_socket_ht",
        "0-3,10-13,20-23,30-36,40-43,50-53,60-63,70-76",
        34,
        1,
        "0-3,10-13,20-23,30-34,40-43,50-53,60-63,70-74",
    ),
    (
        "dual_socket_multi_numa_per_socket_ht_large",
        "0,30-31,43-47,62-63,75-79,94,96,101-111,126-128,158-159,171-175,190-191,203-207,222-223,229-239,254-255",
        28,
        1,
        "43-47,75-79,96,101-105,171-174,203-206,229-232",
    ),
]


@pytest.mark.parametrize(("machine", "available", "number", "group", "want"), _TAKE_DISTRIBUTED)
def test_take_by_topology_numa_distributed(machine: str, available: str, number: int, group: int, want: str) -> None:
    free = cpuset.parse(available)
    assert str(take_by_topology_numa_distributed(topology(machine), free, number, group, _PACKED)) == want


# This machine has two cores with two threads, then four with one, in two sockets of different size.
_UNEVEN = CPUTopology(
    num_cpus=8,
    num_cores=6,
    num_uncore_cache=1,
    num_sockets=2,
    num_numa_nodes=1,
    cpu_details=CPUDetails(
        {cpu: CPUInfo(0, int(cpu > 4), core, 0) for cpu, core in enumerate((0, 0, 2, 2, 4, 5, 6, 7))}
    ),
)


@pytest.mark.parametrize("available", ["1-7", "1,3-7", "0-3,5-7"])
@pytest.mark.parametrize("number", range(1, 7))
@pytest.mark.parametrize("strategy", CPUSortingStrategy)
def test_only_what_is_available_is_taken_where_cores_and_sockets_differ(
    available: str, number: int, strategy: CPUSortingStrategy
) -> None:
    free = cpuset.parse(available)
    packed = take_by_topology_numa_packed(_UNEVEN, free, number, strategy, True)
    distributed = take_by_topology_numa_distributed(_UNEVEN, free, number, 1, strategy)
    assert packed <= free and distributed <= free
    assert (len(packed), len(distributed)) == (number, number)


@pytest.mark.parametrize(
    ("cpus_per_node", "cpus_per_socket"), [(6, 8), (8, 6)], ids=["node of two sockets", "socket of two nodes"]
)
def test_sockets_and_nodes_that_overlap(cpus_per_node: int, cpus_per_socket: int) -> None:
    """CPUs are counted once on virtual machines whose sockets and NUMA nodes overlap."""
    machine = CPUTopology(
        num_cpus=24,
        num_cores=12,
        num_uncore_cache=24 // cpus_per_socket,
        num_sockets=24 // cpus_per_socket,
        num_numa_nodes=24 // cpus_per_node,
        cpu_details=CPUDetails(
            {
                cpu: CPUInfo(cpu // cpus_per_node, cpu // cpus_per_socket, cpu // 2 * 2, cpu // cpus_per_socket)
                for cpu in range(24)
            }
        ),
    )
    free = cpuset.parse("1-2,5,7,9-12,14-22")
    for number, strategy, by_cache in itertools.product(range(1, 18), CPUSortingStrategy, (False, True)):
        assert len(take_by_topology_numa_packed(machine, free, number, strategy, by_cache)) == number
    for number, group in itertools.product(range(2, 17, 2), (1, 2)):
        assert len(take_by_topology_numa_distributed(machine, free, number, group, _PACKED)) == number


def test_what_is_left_is_divided_in_groups() -> None:
    """The rest of a request is divided in groups.

    Three nodes have three CPUs more than their share. Two of them cannot provide the three remaining groups of two.
    """
    machine = topology("dual_socket_multi_numa_per_socket_ht")
    free = cpuset.parse("0-6,10-16,20-26,30-33")
    taken = take_by_topology_numa_distributed(machine, free, 22, 2, _PACKED)
    assert len(taken) == 22 and taken <= free


def test_best_set_of_nodes_is_the_one_that_is_taken() -> None:
    """All sets of four out of five nodes are equally good, and the first of them is chosen."""
    machine = topology("dual_socket_multi_numa_per_socket_ht_large")
    free = cpuset.parse("0-2,16-18,32-34,48-50,64-66")
    taken = take_by_topology_numa_distributed(machine, free, 12, 1, _PACKED)
    assert str(taken) == "0-2,16-18,32-34,64-66"


@pytest.mark.parametrize("distributed", [False, True])
def test_too_few(distributed: bool) -> None:
    machine, free = topology("single_socket_ht"), cpuset.parse("0,2,4,6")
    with pytest.raises(NotEnoughCPUsError) as err:
        if distributed:
            take_by_topology_numa_distributed(machine, free, 5, 1, _PACKED)
        else:
            take_by_topology_numa_packed(machine, free, 5, _PACKED, False)
    assert str(err.value) == "not enough cpus available to satisfy request: requested=5, available=4"


def test_figures_have_three_digits() -> None:
    assert (mean([1, 2, 2]), standard_deviation([1, 2, 2])) == (1.667, 0.471)
    assert mean([0] * 15 + [1]) == 0.063, "halves go up, as in Go"
