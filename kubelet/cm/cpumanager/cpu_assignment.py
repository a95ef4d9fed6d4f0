"""Choose a container's CPUs from the free ones.

The chosen CPUs are close to each other and leave large units intact: whole sockets and NUMA nodes come first, then with
an option whole caches, then whole cores, then single CPUs of cores that are already in use. If there is a choice, the
unit with the fewest free CPUs comes first.

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
    """Signal that fewer CPUs are free than requested."""


class CPUSortingStrategy(enum.Enum):
    """Define the order in which single CPUs are taken.

    PACKED takes all CPUs of a core before those of the next core. SPREAD takes CPUs by number. On most machines,
    consecutive numbers belong to different cores, so each CPU comes from another core.
    """

    PACKED = "packed"
    SPREAD = "spread"


def _round(number: float) -> float:
    """Round a number that is not negative to three decimals, with halves up."""
    return math.floor(number * 1000 + 0.5) / 1000


def mean(numbers: Sequence[float]) -> float:
    """Return the mean, rounded to three decimals."""
    return _round(sum(numbers) / len(numbers))


def standard_deviation(numbers: Sequence[float]) -> float:
    """Return the standard deviation of the whole population, rounded to three decimals."""
    middle = mean(numbers)
    return _round(math.sqrt(sum((number - middle) ** 2 for number in numbers) / len(numbers)))


class CPUAccumulator:
    """Take CPUs until the request is satisfied.

    The lists are sorted by the number of free CPUs, fewest first, and then by ID. The larger unit of the machine comes
    first: NUMA nodes before their sockets, or sockets before their nodes.
    """

    def __init__(
        self,
        topo: CPUTopology,
        available_cpus: CPUSet,
        num_cpus: int,
        cpu_sorting_strategy: CPUSortingStrategy,
    ) -> None:
        self.topo = topo
        # These CPUs are still free.
        self.details = topo.cpu_details.keep_only(available_cpus)
        self.num_cpus_needed = num_cpus
        self.result = cpuset.new()
        self._numa_first = topo.num_sockets >= topo.num_numa_nodes
        self._strategy = cpu_sorting_strategy

    def take_full_first_level(self) -> None:
        """Take full sockets or full NUMA nodes, whichever are larger."""
        if self._numa_first:
            self.take_full_numa_nodes()
        else:
            self.take_full_sockets()

    def take_full_second_level(self) -> None:
        """Take full sockets or full NUMA nodes, whichever are smaller."""
        if self._numa_first:
            self.take_full_sockets()
        else:
            self.take_full_numa_nodes()

    def _is_numa_node_free(self, numa_id: int) -> bool:
        return self.details.cpus_in_numa_nodes(numa_id) == self.topo.cpu_details.cpus_in_numa_nodes(numa_id)

    def _is_socket_free(self, socket_id: int) -> bool:
        """Report whether all CPUs of the socket are free; the divergence of _is_core_free applies here too."""
        return self.details.cpus_in_sockets(socket_id) == self.topo.cpu_details.cpus_in_sockets(socket_id)

    def _is_uncore_cache_free(self, uncore_id: int) -> bool:
        return self.details.cpus_in_uncore_caches(uncore_id) == self.topo.cpu_details.cpus_in_uncore_caches(uncore_id)

    def _is_core_free(self, core_id: int) -> bool:
        """Report whether all CPUs of the core are free.

        DIVERGES (fault of Go): a core is free if all CPUs that this core has are free.
        Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*cpuAccumulator).isCoreFree: a core is free if as many CPUs
        are free as cores have on average.
        Why: where cores differ, or CPUs are offline, a CPU of another container would be assigned a second time.
        Test: cpu_assignment_test.py:test_only_what_is_available_is_taken_where_cores_and_sockets_differ
        """
        return self.details.cpus_in_cores(core_id) == self.topo.cpu_details.cpus_in_cores(core_id)

    def free_numa_nodes(self) -> list[int]:
        """List the NUMA nodes whose CPUs are all free. The functions below do the same for smaller units."""
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
        """List the NUMA nodes that have a free CPU. The functions below do the same for smaller units."""
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
        """List the cores in the order of the units directly above them."""
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
        """Take each free unit that has no more CPUs than are still needed."""
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
        """Take all CPUs that are still needed from this cache's cores, or none."""
        per_core = self.topo.cpus_per_core()
        cores_needed = (self.num_cpus_needed + per_core - 1) // per_core
        free_cores = self.details.cores_needed_in_uncore_cache(cores_needed, uncore_id)
        free_cpus = self.details.cpus_in_cores(*free_cores)
        # An odd request takes only a part of the last core.
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
        """Take whole caches as long as they are not too large, and then the rest from a single cache."""
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
        """Return the smallest and the largest number of NUMA nodes that can provide groups of this size."""
        groups = _div_up(len(self.topo.cpu_details), cpu_group_size)
        groups_per_node = _div_up(groups, len(self.topo.cpu_details.numa_nodes()))
        groups_needed = _div_up(self.num_cpus_needed, cpu_group_size)
        return _div_up(groups_needed, groups_per_node), min(groups_needed, len(self.details.numa_nodes()))

    def needs_at_least(self, number: int) -> bool:
        return self.num_cpus_needed >= number

    def is_satisfied(self) -> bool:
        return self.num_cpus_needed < 1

    def is_failed(self) -> bool:
        """Report whether more CPUs are needed than are free."""
        return self.num_cpus_needed > len(self.details)


def _distinct(groups: Iterable[Iterable[int]]) -> list[int]:
    """Return the members of the groups, each number once.

    DIVERGES (fault of Go): a CPU counts once if a socket is part of several NUMA nodes, or a node of several sockets.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*numaFirst).sortAvailableSockets: it lists a socket once for each
    of its nodes, and so the socket's CPUs.
    Why: on such virtual machines a container would get fewer CPUs than it requests.
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
    """Take CPUs from as few NUMA nodes and sockets as possible. Raise NotEnoughCPUsError."""
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
    """Describe the NUMA nodes of an allocation, and how evenly the machine's CPUs are used afterwards.

    Each node of `combo` provides the same number of CPUs, and the nodes of `remainder` provide the rest.
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
    """Take the same number of CPUs from each of as few NUMA nodes as possible, in groups of a given size.

    One node is enough if it has all CPUs; otherwise two nodes provide half each, and so on. Of several sets of nodes,
    the best is the one that leaves the most even number of CPUs free on all nodes. Groups that cannot be divided evenly
    come from some of the nodes. If no set is possible, the CPUs are packed. Raise NotEnoughCPUsError.
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
    """Return the best set of this size, or the first of several equally good sets.

    DIVERGES (fault of Go): the kubelet uses the set of NUMA nodes that it found to be best.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, (*cpuAccumulator).iterateCombinations: two sets of 4 nodes may be
    slices of one array, and the set that is tried later overwrites the last node of the best set.
    Why: CPUs would come from a node that was found to be worse, or that has too few.
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
    """Return the best distribution over these nodes, or None if they have too few CPUs."""
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
    """Return the free CPUs after these nodes have provided the rest in turn, one group each; None if they have too few.

    DIVERGES (fault of Go): NUMA nodes can provide the rest of a request only if they have enough whole groups.
    Go: pkg/kubelet/cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed: it checks only the number of CPUs.
    Why: two nodes with one CPU each have no group of two, for which the Go kubelet would search in an endless loop.
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
