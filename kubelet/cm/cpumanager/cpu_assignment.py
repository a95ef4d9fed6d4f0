"""Which of the free processors a container gets.

Those that are close to each other, and so that as little as possible is torn apart: whole sockets and NUMA nodes,
then (with an option) caches, then whole cores, then single processors of cores that are in use already. Where there
is a choice, what has the fewest free processors is taken first.

Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kubelet.cm.cpumanager.topology import CPUTopology
from pkg import klog
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet


class NotEnoughCPUsError(ValueError):
    """There are not as many as were asked for."""


class CPUSortingStrategy(enum.Enum):
    """In which order single processors are taken.

    PACKED: all of a core before the next one. SPREAD: by their numbers, which on most machines are of one core after
    the other first, so that each comes from another core.
    """

    PACKED = "packed"
    SPREAD = "spread"


def _round(number: float) -> float:
    """To three digits, halves up; nothing here is negative."""
    return math.floor(number * 1000 + 0.5) / 1000


def mean(numbers: Sequence[float]) -> float:
    """With three digits."""
    return _round(sum(numbers) / len(numbers))


def standard_deviation(numbers: Sequence[float]) -> float:
    """Of all of them, with three digits."""
    middle = mean(numbers)
    return _round(math.sqrt(sum((number - middle) ** 2 for number in numbers) / len(numbers)))


class CPUAccumulator:
    """Takes processors until it has as many as it needs.

    What sorts first in its lists has the fewest free processors; of what has as many, that with the lower number.
    NUMA nodes come before the sockets in them, or sockets before the nodes in them, whichever the machine has.
    """

    def __init__(
        self,
        topo: CPUTopology,
        available_cpus: CPUSet,
        num_cpus: int,
        cpu_sorting_strategy: CPUSortingStrategy,
    ) -> None:
        self.topo = topo
        # Those that can still be taken.
        self.details = topo.cpu_details.keep_only(available_cpus)
        self.num_cpus_needed = num_cpus
        self.result = cpuset.new()
        self._numa_first = topo.num_sockets >= topo.num_numa_nodes
        self._strategy = cpu_sorting_strategy

    def take_full_first_level(self) -> None:
        """Sockets or NUMA nodes, whichever are the larger."""
        if self._numa_first:
            self.take_full_numa_nodes()
        else:
            self.take_full_sockets()

    def take_full_second_level(self) -> None:
        """The other of the two."""
        if self._numa_first:
            self.take_full_sockets()
        else:
            self.take_full_numa_nodes()

    def _is_numa_node_free(self, numa_id: int) -> bool:
        return self.details.cpus_in_numa_nodes(numa_id) == self.topo.cpu_details.cpus_in_numa_nodes(numa_id)

    def _is_socket_free(self, socket_id: int) -> bool:
        """Whether all of the socket's own processors are free; what _is_core_free says of Go is true of this, too."""
        return self.details.cpus_in_sockets(socket_id) == self.topo.cpu_details.cpus_in_sockets(socket_id)

    def _is_uncore_cache_free(self, uncore_id: int) -> bool:
        return self.details.cpus_in_uncore_caches(uncore_id) == self.topo.cpu_details.cpus_in_uncore_caches(uncore_id)

    def _is_core_free(self, core_id: int) -> bool:
        """Whether all of the core's own processors are free.

        DIVERGES (fault of Go): a core is free when as many processors are free as this core has.
        Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*cpuAccumulator).isCoreFree: when as many are free as cores
        have on average.
        Why: where cores differ, or processors are offline, one that another container has would be given away again.
        Test: cpu_assignment_test.py:test_only_what_is_available_is_taken_where_cores_and_sockets_differ
        """
        return self.details.cpus_in_cores(core_id) == self.topo.cpu_details.cpus_in_cores(core_id)

    def free_numa_nodes(self) -> list[int]:
        """Those of which nothing is taken; so of the others."""
        return [numa for numa in self.sort_available_numa_nodes() if self._is_numa_node_free(numa)]

    def free_sockets(self) -> list[int]:
        return [socket for socket in self.sort_available_sockets() if self._is_socket_free(socket)]

    def free_uncore_cache(self) -> list[int]:
        return [uncore for uncore in self.sort_available_uncore_caches() if self._is_uncore_cache_free(uncore)]

    def free_cores(self) -> list[int]:
        return [core for core in self.sort_available_cores() if self._is_core_free(core)]

    def free_cpus(self) -> list[int]:
        if self._strategy is CPUSortingStrategy.SPREAD:
            return self.sort_available_cpus_spread()
        return self.sort_available_cpus_packed()

    def _sort(self, ids: Iterable[int], cpus_in: Callable[[int], CPUSet]) -> list[int]:
        return sorted(ids, key=lambda number: (len(cpus_in(number)), number))

    def sort_available_numa_nodes(self) -> list[int]:
        """Those with a free processor; so of the others."""
        if self._numa_first:
            return self._sort(self.details.numa_nodes(), self.details.cpus_in_numa_nodes)
        return _distinct(
            self._sort(self.details.numa_nodes_in_sockets(socket), self.details.cpus_in_numa_nodes)
            for socket in self.sort_available_sockets()
        )

    def sort_available_sockets(self) -> list[int]:
        if not self._numa_first:
            return self._sort(self.details.sockets(), self.details.cpus_in_sockets)
        return _distinct(
            self._sort(self.details.sockets_in_numa_nodes(numa), self.details.cpus_in_sockets)
            for numa in self.sort_available_numa_nodes()
        )

    def sort_available_uncore_caches(self) -> list[int]:
        return _distinct(
            self._sort(self.details.uncore_in_numa_nodes(numa), self.details.cpus_in_uncore_caches)
            for numa in self.sort_available_numa_nodes()
        )

    def sort_available_cores(self) -> list[int]:
        """In the order of what is directly above them."""
        if self._numa_first:
            groups = map(self.details.cores_in_sockets, self.sort_available_sockets())
        else:
            groups = map(self.details.cores_in_numa_nodes, self.sort_available_numa_nodes())
        return [core for cores in groups for core in self._sort(cores, self.details.cpus_in_cores)]

    def sort_available_cpus_packed(self) -> list[int]:
        cores = self.sort_available_cores()
        return [cpu for core in cores for cpu in self.details.cpus_in_cores(core).list()]

    def sort_available_cpus_spread(self) -> list[int]:
        sockets = self.sort_available_sockets()
        return [cpu for socket in sockets for cpu in self.details.cpus_in_sockets(socket).list()]

    def take(self, cpus: CPUSet) -> None:
        self.result |= cpus
        self.details = self.details.keep_only(self.details.cpus() - self.result)
        self.num_cpus_needed -= len(cpus)

    def _take_full(self, free: Iterable[int], cpus_in: Callable[[int], CPUSet], msg: str, key: str) -> None:
        """All of those that are free and not too large."""
        for number in free:
            cpus = cpus_in(number)
            if self.needs_at_least(len(cpus)):
                klog.v(4).info_s(msg, **{key: number})
                self.take(cpus)

    def take_full_numa_nodes(self) -> None:
        cpus_in = self.topo.cpu_details.cpus_in_numa_nodes
        self._take_full(self.free_numa_nodes(), cpus_in, "takeFullNUMANodes: claiming NUMA node", "numa")

    def take_full_sockets(self) -> None:
        cpus_in = self.topo.cpu_details.cpus_in_sockets
        self._take_full(self.free_sockets(), cpus_in, "takeFullSockets: claiming socket", "socket")

    def take_full_uncore(self) -> None:
        cpus_in = self.topo.cpu_details.cpus_in_uncore_caches
        self._take_full(self.free_uncore_cache(), cpus_in, "takeFullUncore: claiming uncore", "uncore")

    def take_partial_uncore(self, uncore_id: int) -> None:
        """All that is needed from this cache's cores, or nothing of it."""
        per_core = self.topo.cpus_per_core()
        cores_needed = (self.num_cpus_needed + per_core - 1) // per_core
        free_cores = self.details.cores_needed_in_uncore_cache(cores_needed, uncore_id)
        free_cpus = self.details.cpus_in_cores(*free_cores)
        # An odd number tears the last core apart.
        if self.num_cpus_needed % 2 and per_core > 1 and len(free_cpus) > self.num_cpus_needed:
            free_cpus = CPUSet(free_cpus.list()[:-1])
        claimed = self.num_cpus_needed == len(free_cpus)
        klog.v(4).info_s(
            "takePartialUncore: trying to claim partial uncore",
            uncore=uncore_id,
            claimed=claimed,
            needed=self.num_cpus_needed,
            cores=str(free_cores),
            cpus=str(free_cpus),
        )
        if claimed:
            self.take(free_cpus)

    def take_uncore_cache(self) -> None:
        """Whole caches as long as one is not too large, and then what fits into one."""
        cpus_in_uncore = self.topo.cpus_per_uncore()
        for uncore in self.sort_available_uncore_caches():
            if self.needs_at_least(cpus_in_uncore):
                self.take_full_uncore()
            if self.is_satisfied():
                return
            self.take_partial_uncore(uncore)
            if self.is_satisfied():
                return

    def take_full_cores(self) -> None:
        cpus_in = self.topo.cpu_details.cpus_in_cores
        self._take_full(self.free_cores(), cpus_in, "takeFullCores: claiming core", "core")

    def take_remaining_cpus(self) -> None:
        cpus = self.free_cpus()[: self.num_cpus_needed]
        klog.v(4).info_s("takeRemainingCPUs: claiming CPUs", cpus=cpus)
        self.take(CPUSet(cpus))

    def range_numa_nodes_needed_to_satisfy(self, cpu_group_size: int) -> tuple[int, int]:
        """The least and the largest number of NUMA nodes from which groups of this size can come."""
        groups = _div_up(len(self.topo.cpu_details), cpu_group_size)
        groups_per_node = _div_up(groups, len(self.topo.cpu_details.numa_nodes()))
        groups_needed = _div_up(self.num_cpus_needed, cpu_group_size)
        return _div_up(groups_needed, groups_per_node), min(groups_needed, len(self.details.numa_nodes()))

    def needs_at_least(self, number: int) -> bool:
        return self.num_cpus_needed >= number

    def is_satisfied(self) -> bool:
        return self.num_cpus_needed < 1

    def is_failed(self) -> bool:
        """Needs more than there are."""
        return self.num_cpus_needed > len(self.details)


def _distinct(groups: Iterable[Iterable[int]]) -> list[int]:
    """What is in the groups, each number once.

    DIVERGES (fault of Go): a processor counts once where a socket is part of several NUMA nodes, or the other way.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*numaFirst).sortAvailableSockets: a socket is listed once for
    each of its nodes, and its processors likewise.
    Why: on such virtual machines a container would get fewer processors than it asks for.
    Test: cpu_assignment_test.py:test_sockets_and_nodes_that_overlap
    """
    return list(dict.fromkeys(itertools.chain.from_iterable(groups)))


def _div_up(number: int, by: int) -> int:
    return (number - 1) // by + 1


def take_by_topology_numa_packed(
    topo: CPUTopology,
    available_cpus: CPUSet,
    num_cpus: int,
    cpu_sorting_strategy: CPUSortingStrategy,
    prefer_align_by_uncore_cache: bool,
) -> CPUSet:
    """From as few NUMA nodes and sockets as can be. Raises NotEnoughCPUsError."""
    acc = CPUAccumulator(topo, available_cpus, num_cpus, cpu_sorting_strategy)
    _check_enough(acc, available_cpus, num_cpus)
    steps = [acc.take_full_first_level, acc.take_full_second_level]
    if prefer_align_by_uncore_cache:
        steps.append(acc.take_uncore_cache)
    if cpu_sorting_strategy is not CPUSortingStrategy.SPREAD:
        steps.append(acc.take_full_cores)
    steps.append(acc.take_remaining_cpus)
    for step in steps:
        if not acc.is_satisfied():
            step()
    return acc.result


def _check_enough(acc: CPUAccumulator, available_cpus: CPUSet, num_cpus: int) -> None:
    if acc.is_failed():
        raise NotEnoughCPUsError(
            f"not enough cpus available to satisfy request: requested={num_cpus}, available={len(available_cpus)}"
        )


class _Distribution(NamedTuple):
    """How unevenly the node's processors are used afterwards, and from which NUMA nodes they come.

    From each of combo comes the same number, and what is then left from those of remainder.
    """

    balance: float
    combo: tuple[int, ...]
    remainder: tuple[int, ...] = ()


def take_by_topology_numa_distributed(
    topo: CPUTopology,
    available_cpus: CPUSet,
    num_cpus: int,
    cpu_group_size: int,
    cpu_sorting_strategy: CPUSortingStrategy,
) -> CPUSet:
    """The same number from each of as few NUMA nodes as have enough, in groups of a size. Raises NotEnoughCPUsError.

    One node, if it has all; or two, of which each has half, and so on. Of several such sets of nodes that is taken
    after which all nodes have left as equally many as can be. Groups that are too many to be divided go to some of
    the nodes. If no set will do, what is asked for is packed.
    """
    if num_cpus % cpu_group_size:
        return take_by_topology_numa_packed(topo, available_cpus, num_cpus, cpu_sorting_strategy, False)
    acc = CPUAccumulator(topo, available_cpus, num_cpus, cpu_sorting_strategy)
    if acc.is_satisfied():
        return acc.result
    _check_enough(acc, available_cpus, num_cpus)
    available = {numa: len(acc.details.cpus_in_numa_nodes(numa)) for numa in acc.sort_available_numa_nodes()}
    least, most = acc.range_numa_nodes_needed_to_satisfy(cpu_group_size)
    for size in range(least, most + 1):
        best = _best_distribution(available, size, num_cpus, cpu_group_size)
        if best is not None:
            return _take_distributed(acc, best, num_cpus, cpu_group_size, cpu_sorting_strategy)
    return take_by_topology_numa_packed(topo, available_cpus, num_cpus, cpu_sorting_strategy, False)


def _best_distribution(
    available: Mapping[int, int], size: int, num_cpus: int, cpu_group_size: int
) -> _Distribution | None:
    """Of all sets of so many nodes; the first of those that are equally good.

    DIVERGES (fault of Go): the set of NUMA nodes that was found best is the one that is taken.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*cpuAccumulator).iterateCombinations: two sets of 4 nodes may be
    slices of one array, and the one that is tried later overwrites the last node of the best.
    Why: processors would come from a node that was found worse, or that has too few.
    Test: cpu_assignment_test.py:test_best_set_of_nodes_is_the_one_that_is_taken
    """
    best: _Distribution | None = None
    for combo in itertools.combinations(available, size):
        found = _distribution(available, combo, num_cpus, cpu_group_size)
        if found is not None and (best is None or found.balance < best.balance):
            best = found
        if best is not None and best.balance == 0:
            break
    return best


def _distribution(
    available: Mapping[int, int], combo: tuple[int, ...], num_cpus: int, cpu_group_size: int
) -> _Distribution | None:
    """How it is from these nodes; None if they have not enough."""
    if sum(available[numa] // cpu_group_size for numa in combo) * cpu_group_size < num_cpus:
        return None
    distribution = _even_share(num_cpus, combo, cpu_group_size)
    if any(available[numa] < distribution for numa in combo):
        return None
    after = {numa: cpus - distribution if numa in combo else cpus for numa, cpus in available.items()}
    remainder = num_cpus - distribution * len(combo)
    if not remainder:
        return _Distribution(standard_deviation(list(after.values())), combo)
    remainder_combo = [numa for numa in combo if after[numa] >= cpu_group_size]
    best: _Distribution | None = None
    for size in range(len(remainder_combo), 0, -1):
        for subset in itertools.combinations(remainder_combo, size):
            left = _after_remainder(after, subset, remainder, cpu_group_size)
            if left is None:
                continue
            balance = standard_deviation(list(left.values()))
            if best is None or balance < best.balance:
                best = _Distribution(balance, combo, subset)
    return best


def _even_share(num_cpus: int, combo: Sequence[int], cpu_group_size: int) -> int:
    return num_cpus // len(combo) // cpu_group_size * cpu_group_size


def _after_remainder(
    after: Mapping[int, int], subset: Sequence[int], remainder: int, cpu_group_size: int
) -> dict[int, int] | None:
    """What the nodes have when the rest came from these, one group each in turn; None if they have not enough.

    DIVERGES (fault of Go): NUMA nodes have enough for the rest of a request if they have as many whole groups.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed: if they have as many processors.
    Why: two nodes with one processor each have no group of two, for which Go would search for ever.
    Test: cpu_assignment_test.py:test_what_is_left_is_divided_in_groups
    """
    if sum(after[numa] // cpu_group_size for numa in subset) * cpu_group_size < remainder:
        return None
    left = dict(after)
    while remainder > 0:
        for numa in subset:
            if remainder > 0 and left[numa] >= cpu_group_size:
                left[numa] -= cpu_group_size
                remainder -= cpu_group_size
    return left


def _take_distributed(
    acc: CPUAccumulator,
    chosen: _Distribution,
    num_cpus: int,
    cpu_group_size: int,
    cpu_sorting_strategy: CPUSortingStrategy,
) -> CPUSet:
    def take(numa: int, number: int) -> None:
        free = acc.details.cpus_in_numa_nodes(numa)
        acc.take(take_by_topology_numa_packed(acc.topo, free, number, cpu_sorting_strategy, False))

    distribution = _even_share(num_cpus, chosen.combo, cpu_group_size)
    for numa in chosen.combo:
        take(numa, distribution)
    while acc.num_cpus_needed > 0:
        for numa in chosen.remainder:
            if acc.num_cpus_needed > 0 and len(acc.details.cpus_in_numa_nodes(numa)) >= cpu_group_size:
                take(numa, cpu_group_size)
    return acc.result
