"""Define the policy that allocates memory exclusively to guaranteed pods, from as few NUMA nodes as possible.

Containers use a node either alone or always in a group with the same other nodes, so that the free memory of the node
or the group is known.

Go: pkg/kubelet/cm/memorymanager/policy_static.go
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from kubelet import metrics
from kubelet.cm.memorymanager import state
from kubelet.cm.topologymanager import Hints, TopologyHint, bitmask
from pkg import klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api import resource
from pkg.apis.core.v1 import helper as corehelper
from pkg.apis.core.v1.helper import qos
from pkg.component_helpers import resource as resourcehelper

if TYPE_CHECKING:
    from kubelet.cadvisor import MachineInfo
    from kubelet.cm.memorymanager.policy import Policy
    from kubelet.cm.topologymanager import Store

POLICY_TYPE_STATIC = "Static"
_KIB = 1024
_OF_NODE = (metrics.RESOURCE_MANAGER_MEMORY, metrics.RESOURCE_MANAGER_NODE)

# Amounts holds bytes by resource, either requested or free.
Amounts = dict[str, int]
# The keys are the NUMA nodes that provide the bytes together, and the resource.
Reusable = Counter[tuple[bitmask.BitMask, str]]
# The keys are the IDs of NUMA nodes.
SystemReservedMemory = Mapping[int, Mapping[str, int]]


class NotEnoughMemoryError(ValueError):
    """Signal that no NUMA nodes can provide the requested memory under the policy's rules."""


class PolicyStatic:
    """Implement Policy. The manager holds its lock during calls that change something."""

    def __init__(self, machine_info: MachineInfo, reserved: SystemReservedMemory, affinity: Store) -> None:
        """Raise ValueError if no memory is reserved for the system, or if a NUMA node's ID does not fit a bit mask.

        DIVERGES (fault of Go): with the policy Static, the kubelet does not start if the ID of a NUMA node exceeds 63.
        Go: pkg/kubelet/cm/topologymanager/bitmask/bitmask.go, IterateBitMasks: it uses a mask that could not be
        created, and the kubelet crashes at the first guaranteed pod.
        Why: a machine's GPUs may have such NUMA nodes, and the administrator learns of the fault at once.
        Test: policy_static_test.py:test_nodes_that_are_memory_of_gpus
        """
        if not any(node.get(v1.RESOURCE_MEMORY, 0) for node in reserved.values()):
            raise ValueError("[memorymanager] you should specify the system reserved memory")
        try:
            bitmask.BitMask(*(node.id for node in machine_info.topology))
        except ValueError as err:
            nodes = [node.id for node in machine_info.topology]
            raise ValueError(f"[memorymanager] memory of the NUMA nodes {nodes} cannot be managed: {err}") from err
        self._machine_info = machine_info
        self._system_reserved = reserved
        self._affinity = affinity

    def name(self) -> str:
        return POLICY_TYPE_STATIC

    def start(self, s: state.State) -> None:
        try:
            self._validate_state(s)
        except ValueError as err:
            klog.error_s(err, "Invalid state, please drain node and remove policy state file")
            raise

    def allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        if not _is_managed(pod):
            return
        klog.info_s("Allocate", pod=klog.kobj(pod), containerName=container.name)
        metrics.MEMORY_MANAGER_PINNING_REQUEST_TOTAL.inc()
        try:
            self._allocate(s, pod, container)
        except ValueError:
            metrics.MEMORY_MANAGER_PINNING_ERRORS_TOTAL.inc()
            metrics.RESOURCE_MANAGER_ALLOCATION_ERRORS_TOTAL.labels(*_OF_NODE).inc()
            raise

    def _allocate(self, s: state.State, pod: v1.Pod, container: v1.Container) -> None:
        uid = pod.metadata.uid
        if s.get_memory_blocks(uid, container.name) is not None:
            klog.info_s(
                "Container already present in state, skipping", pod=klog.kobj(pod), containerName=container.name
            )
            return
        if _has_given_back(s, pod, container):
            klog.v(4).info_s("Init container has ended, skipping", pod=klog.kobj(pod), containerName=container.name)
            return
        machine_state = s.get_machine_state()
        requested = _get_container_requested_resources(container)
        reusable = _reusable_memory(s, pod)
        nodes = self._choose_nodes(machine_state, reusable, pod, container, requested)
        blocks = [state.Block(tuple(nodes.get_bits()), name, size) for name, size in requested.items()]
        for block in blocks:
            fresh = max(block.size - reusable[nodes, block.type], 0)
            _update_machine_state(machine_state, block.numa_affinity, block.type, fresh)
            metrics.RESOURCE_MANAGER_ALLOCATIONS_TOTAL.labels(*_OF_NODE).inc()
        s.set_machine_state(machine_state)
        s.set_memory_blocks(uid, container.name, blocks)
        _update_init_containers_memory_blocks(s, pod, container, blocks)
        assigned = metrics.RESOURCE_MANAGER_MEMORY, metrics.RESOURCE_MANAGER_EXCLUSIVE_NODE
        metrics.RESOURCE_MANAGER_CONTAINER_ASSIGNMENTS.labels(*assigned).inc()
        klog.v(4).info_s("Allocated exclusive memory", pod=klog.kobj(pod), containerName=container.name)

    def _choose_nodes(
        self,
        machine_state: state.NUMANodeMap,
        reusable: Reusable,
        pod: v1.Pod,
        container: v1.Container,
        requested: Amounts,
    ) -> bitmask.BitMask:
        """Return the nodes that provide the memory.

        These are the topology manager's nodes, with further nodes if they have too little memory, or any nodes if the
        topology manager has no preference.
        """
        hint = self._affinity.get_affinity(pod.metadata.uid, container.name)
        klog.info_s("Got topology affinity", hint=hint, pod=klog.kobj(pod), containerName=container.name)
        nodes = hint.numa_node_affinity
        if nodes is None:
            best = self._get_default_hint(machine_state, reusable, requested)
            if hint.preferred and not best.preferred:
                raise NotEnoughMemoryError("[memorymanager] failed to find the default preferred hint")
            hint, nodes = best, _nodes_of(best)
        if not _is_affinity_satisfy_request(machine_state, nodes, requested):
            best = self._extend_topology_manager_hint(machine_state, reusable, requested, nodes)
            if hint.preferred and not best.preferred:
                raise NotEnoughMemoryError("[memorymanager] failed to find the extended preferred hint")
            nodes = _nodes_of(best)
        if _is_affinity_violating_numa_allocations(machine_state, nodes):
            raise NotEnoughMemoryError("[memorymanager] preferred hint violates NUMA node allocation")
        return nodes

    def remove_container(self, s: state.State, pod_uid: str, container_name: str) -> None:
        klog.info_s("RemoveContainer", podUID=pod_uid, containerName=container_name)
        blocks = s.get_memory_blocks(pod_uid, container_name)
        if blocks is None:
            return
        s.delete(pod_uid, container_name)
        machine_state = s.get_machine_state()
        for block in blocks:
            _release(machine_state, block)
        s.set_machine_state(machine_state)
        klog.info_s("Released container-level memory", podUID=pod_uid, containerName=container_name)

    def get_pod_topology_hints(self, s: state.State, pod: v1.Pod) -> Hints:
        if qos.get_pod_qos(pod) != v1.POD_QOS_GUARANTEED:
            return {}
        try:
            requested = _get_pod_requested_resources(pod)
        except ValueError as err:
            klog.error_s(err, "Failed to get pod requested resources", podUID=pod.metadata.uid)
            return {}
        if not requested or _skips_hints(pod):
            return {}
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            if (blocks := s.get_memory_blocks(pod.metadata.uid, container.name)) is not None:
                return _regenerate_hints(pod, container, blocks, requested)
        # The hints are for the pod as a whole, whose request already includes what init containers leave.
        return self._calculate_hints(s.get_machine_state(), _reusable_memory(s, pod), requested)

    def get_topology_hints(self, s: state.State, pod: v1.Pod, container: v1.Container) -> Hints:
        if qos.get_pod_qos(pod) != v1.POD_QOS_GUARANTEED:
            return {}
        uid = pod.metadata.uid
        try:
            requested = _get_container_requested_resources(container)
        except ValueError as err:
            klog.error_s(err, "Failed to get container requested resources", podUID=uid, containerName=container.name)
            return {}
        if _skips_hints(pod):
            return {}
        # A container that already has its memory keeps it, for example after a restart of the kubelet.
        if (blocks := s.get_memory_blocks(uid, container.name)) is not None:
            return _regenerate_hints(pod, container, blocks, requested)
        if _has_given_back(s, pod, container):
            return {}
        return self._calculate_hints(s.get_machine_state(), _reusable_memory(s, pod), requested)

    def get_allocatable_memory(self, s: state.State) -> list[state.Block]:
        return [
            state.Block((node,), name, table.allocatable)
            for node, node_state in sorted(s.get_machine_state().items())
            for name, table in node_state.memory_map.items()
            if table.allocatable
        ]

    def _calculate_hints(self, machine_state: state.NUMANodeMap, reusable: Reusable, requested: Amounts) -> Hints:
        """Return all sets of nodes with enough free memory.

        A set is preferred if it has no more nodes than the request would need on an idle machine.
        """
        numa_nodes = sorted(machine_state)
        fewest = len(numa_nodes)
        found: list[bitmask.BitMask] = []
        for mask in bitmask.iterate_bit_masks(numa_nodes):
            nodes = mask.get_bits()
            if not _covers(_sum_of(machine_state, nodes, "allocatable", requested), requested):
                continue
            fewest = min(fewest, len(nodes))
            if not _can_be_used(machine_state, nodes):
                continue
            free = _sum_of(machine_state, nodes, "free", requested)
            if _covers({name: free[name] + reusable[mask, name] for name in free}, requested):
                found.append(mask)
        hints = [TopologyHint(mask, mask.count() == fewest) for mask in found]
        return {name: list(hints) for name in requested} if hints else {}

    def _get_default_hint(
        self, machine_state: state.NUMANodeMap, reusable: Reusable, requested: Amounts
    ) -> TopologyHint:
        hints = _memory_hints(self._calculate_hints(machine_state, reusable, requested))
        if not hints:
            raise NotEnoughMemoryError(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
            )
        return _find_best_hint(hints)

    def _extend_topology_manager_hint(
        self, machine_state: state.NUMANodeMap, reusable: Reusable, requested: Amounts, mask: bitmask.BitMask
    ) -> TopologyHint:
        """Return the best hint that contains these nodes, because merging hints may have left too few of them."""
        hints = _memory_hints(self._calculate_hints(machine_state, reusable, requested))
        fitting = [hint for hint in hints if mask & _nodes_of(hint) == mask]
        if not fitting:
            raise NotEnoughMemoryError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
        return _find_best_hint(fitting)

    def _validate_state(self, s: state.State) -> None:
        """Raise ValueError if the allocations do not fit this machine and its configuration.

        Memory modules may be added or removed, and reservations may change.
        """
        machine_state, assignments = s.get_machine_state(), s.get_memory_assignments()
        if not machine_state:
            if assignments:
                raise ValueError("[memorymanager] machine state can not be empty when it has memory assignments")
            s.set_machine_state(self._get_default_machine_state())
            return
        expected = self._get_default_machine_state()
        for pod_uid, containers in assignments.items():
            for container_name, blocks in containers.items():
                _update_expected_machine_state(expected, blocks, pod_uid, container_name)
        if not _are_machine_states_equal(machine_state, expected):
            raise ValueError("[memorymanager] the expected machine state is different from the real one")

    def _get_default_machine_state(self) -> state.NUMANodeMap:
        """Return the state of the machine without any allocation."""
        nodes: state.NUMANodeMap = {}
        for node in self._machine_info.topology:
            tables: dict[str, state.MemoryTable] = {}
            for pages in node.huge_pages:
                page_size = resource.new_quantity(pages.page_size * _KIB, resource.Format.BINARY_SI)
                name = f"{v1.RESOURCE_HUGE_PAGES_PREFIX}{page_size}"
                tables[name] = self._memory_table(node.id, name, pages.num_pages * pages.page_size * _KIB)
            of_huge_pages = sum(table.total_mem_size for table in tables.values())
            tables[v1.RESOURCE_MEMORY] = self._memory_table(node.id, v1.RESOURCE_MEMORY, node.memory, of_huge_pages)
            nodes[node.id] = state.NUMANodeState(0, tables, [node.id])
        return nodes

    def _memory_table(self, node: int, resource_name: str, total: int, used_otherwise: int = 0) -> state.MemoryTable:
        """Return the table of one kind of memory. Raise ValueError if more is reserved than exists.

        DIVERGES (fault of Go): the kubelet does not start if more memory is reserved on a NUMA node than the node has.
        Go: pkg/kubelet/cm/memorymanager/policy_static.go, (*staticPolicy).getDefaultMachineState: the subtraction of
        unsigned numbers wraps around, and nearly 2^64 bytes can be allocated.
        Why: pods would be promised memory that does not exist.
        Test: policy_static_test.py:test_more_is_reserved_than_there_is
        """
        reserved = self._system_reserved.get(node, {}).get(resource_name, 0)
        allocatable = total - reserved - used_otherwise
        if allocatable < 0:
            raise ValueError(
                f"[memorymanager] {reserved} bytes of {resource_name} are reserved on NUMA node {node}, "
                f"which has {total - used_otherwise}"
            )
        return state.MemoryTable(total, reserved, allocatable, 0, allocatable)


def _is_managed(pod: v1.Pod) -> bool:
    """Report whether the pod's containers get exclusive memory.

    The pod must be guaranteed, and must not set pod-level resources.
    """
    if (pod_qos := qos.get_pod_qos(pod)) != v1.POD_QOS_GUARANTEED:
        klog.v(5).info_s(
            "Exclusive memory allocation skipped, pod QoS is not guaranteed", pod=klog.kobj(pod), qos=pod_qos
        )
        return False
    if resourcehelper.is_pod_level_resources_set(pod):
        klog.v(2).info_s(
            "Allocation skipped, pod is using pod-level resources which are not supported by the static "
            "Memory manager policy",
            pod=klog.kobj(pod),
            podUID=pod.metadata.uid,
        )
        return False
    return True


def _skips_hints(pod: v1.Pod) -> bool:
    """Report whether the pod gets no hints because it sets pod-level resources."""
    if not resourcehelper.is_pod_level_resources_set(pod):
        return False
    klog.v(3).info_s(
        "Memory Manager pod hint generation skipped, pod is using pod-level resources but the PodLevelResourceManagers "
        "feature gate is not enabled",
        pod=klog.kobj(pod),
        podUID=pod.metadata.uid,
    )
    return True


def _reusable_memory(s: state.State, pod: v1.Pod) -> Reusable:
    """Return the memory that the pod's init containers leave to later containers. A sidecar keeps its own.

    DIVERGES (fault of Go): the kubelet computes the reusable memory each time from the blocks of the init containers.
    Go: pkg/kubelet/cm/memorymanager/policy_static.go, (*staticPolicy).updatePodReusableMemory: a separate count
    outlives the pod, and is lowered again when a container that has its memory is admitted again.
    Why: a static pod that returns with its UID would take too little memory from the machine, and the next kubelet
    would reject a state whose sums do not match.
    Test: memory_manager_test.py:test_pod_that_comes_back_counts_on_nothing_that_it_had,
    memory_manager_test.py:test_restart_after_a_pod_was_asked_about_again
    """
    found: Reusable = Counter()
    for container in pod.spec.init_containers:
        if not podutil.is_restartable_init_container(container):
            for block in s.get_memory_blocks(pod.metadata.uid, container.name) or ():
                found[bitmask.BitMask(*block.numa_affinity), block.type] += block.size
    return found


def _is_regular_init_container(pod: v1.Pod, container: v1.Container) -> bool:
    found = next((c for c in pod.spec.init_containers if c.name == container.name), None)
    return found is not None and not podutil.is_restartable_init_container(found)


def _has_given_back(s: state.State, pod: v1.Pod, container: v1.Container) -> bool:
    """Report whether the container is an init container that has ended, so that a later container has its memory.

    DIVERGES (fault of Go): when a pod is admitted again after a restart, init containers that have ended get no memory.
    Go: pkg/kubelet/cm/memorymanager/policy_static.go, (*staticPolicy).Allocate: they get memory a second time.
    Why: no process uses that memory; and if too little memory is free, a running pod would be rejected.
    Test: memory_manager_test.py:test_restart_after_init_containers_have_ended
    """
    if not _is_regular_init_container(pod, container):
        return False
    names = [c.name for c in (*pod.spec.init_containers, *pod.spec.containers)]
    later = names[names.index(container.name) + 1 :]
    return any(s.get_memory_blocks(pod.metadata.uid, name) is not None for name in later)


def _get_container_requested_resources(container: v1.Container) -> Amounts:
    """Return the requested memory and huge pages in bytes. Raise ValueError for an amount with a fraction."""
    return {
        name: as_int64(quantity)
        for name, quantity in container.resources.requests.items()
        if name == v1.RESOURCE_MEMORY or corehelper.is_huge_page_resource_name(name)
    }


def as_int64(quantity: resource.Quantity) -> int:
    """Return the exact number. Raise ValueError if it has a fraction.

    DIVERGES (fault of Go): the kubelet accepts every whole number of bytes, even if it is written as "1.5Gi".
    Go: pkg/kubelet/cm/memorymanager/policy_static.go, getContainerRequestedResources: AsInt64 reports that its fast
    conversion does not apply to such a text, which counts as a number with a fraction.
    Why: static pods and the configuration's reservedMemory may use such a text; the API server would write 1536Mi.
    Test: policy_static_test.py:test_whole_number_of_bytes_that_is_written_with_a_point
    """
    if quantity.cmp(resource.new_quantity(quantity.value())):
        raise ValueError(f"[memorymanager] failed to represent quantity {quantity} as int64")
    return quantity.value()


def _get_pod_requested_resources(pod: v1.Pod) -> Amounts:
    """Return the most that the pod needs at any time. An init container runs beside the sidecars before it."""
    init: Amounts = {}
    sidecars: Amounts = {}
    for container in pod.spec.init_containers:
        is_sidecar = podutil.is_restartable_init_container(container)
        for name, size in _get_container_requested_resources(container).items():
            if is_sidecar:
                sidecars[name] = sidecars.get(name, 0) + size
            else:
                init[name] = max(init.get(name, 0), sidecars.get(name, 0) + size)
    apps: Amounts = {}
    for container in pod.spec.containers:
        for name, size in _get_container_requested_resources(container).items():
            apps[name] = apps.get(name, 0) + size
    return {name: max(size + sidecars.get(name, 0), init.get(name, 0)) for name, size in apps.items()}


def _update_machine_state(
    machine_state: state.NUMANodeMap, numa_affinity: Iterable[int], resource_name: str, size: int
) -> None:
    """Take memory from the nodes, in their order. All of them count as used, even if they provide nothing."""
    nodes = list(numa_affinity)
    for node in nodes:
        node_state = machine_state[node]
        node_state.number_of_assignments += 1
        node_state.cells = list(nodes)
        table = node_state.memory_map.get(resource_name)
        if table is None:
            continue
        taken = min(table.free, size)
        table.reserved += taken
        table.free -= taken
        size -= taken


def _release(machine_state: state.NUMANodeMap, block: state.Block) -> None:
    """Add the memory of a released block to the free memory of its nodes."""
    size = block.size
    for node in block.numa_affinity:
        node_state = machine_state[node]
        node_state.number_of_assignments -= 1
        if node_state.number_of_assignments == 0:
            node_state.cells = [node]
        table = node_state.memory_map.get(block.type)
        if table is None:
            continue
        given = min(table.reserved, size)
        table.free += given
        table.reserved -= given
        size -= given


def _update_init_containers_memory_blocks(
    s: state.State, pod: v1.Pod, container: v1.Container, blocks: list[state.Block]
) -> None:
    """Reduce the blocks of earlier init containers by what this container reuses, so that the pod's sum stays right.

    Init containers may keep blocks of size 0, because their nodes still count as used.
    """
    for block in blocks:
        size = block.size
        for init_container in pod.spec.init_containers:
            if init_container.name == container.name or size == 0:
                break
            if podutil.is_restartable_init_container(init_container):
                continue
            theirs = s.get_memory_blocks(pod.metadata.uid, init_container.name)
            if not theirs:
                continue
            left: list[state.Block] = []
            for their in theirs:
                same = their.type == block.type and set(their.numa_affinity) == set(block.numa_affinity)
                taken = min(their.size, size) if same else 0
                size -= taken
                left.append(state.Block(their.numa_affinity, their.type, their.size - taken))
            s.set_memory_blocks(pod.metadata.uid, init_container.name, left)


def _regenerate_hints(pod: v1.Pod, container: v1.Container, blocks: list[state.Block], requested: Amounts) -> Hints:
    """Return the container's allocation as the only hints, or no hints if it differs from the request."""
    if len(blocks) != len(requested):
        klog.info_s(
            "The number of requested resources by the container differs from the number of memory blocks",
            pod=klog.kobj(pod),
            containerName=container.name,
        )
        return {}
    hints: dict[str, list[TopologyHint]] = {name: [] for name in requested}
    for block in blocks:
        keys = {"pod": klog.kobj(pod), "containerName": container.name, "type": block.type}
        if block.type not in requested:
            klog.info_s("Container requested resources but none available of this type", **keys)
            return {}
        if block.size != requested[block.type]:
            klog.info_s(
                "Memory already allocated with different numbers than requested",
                **keys,
                requestedResource=requested[block.type],
                allocatedSize=block.size,
            )
            return {}
        klog.info_s("Regenerating TopologyHints, resource was already allocated to pod", **keys)
        hints[block.type].append(TopologyHint(bitmask.BitMask(*block.numa_affinity), preferred=True))
    return {**hints}


def _sum_of(machine_state: state.NUMANodeMap, nodes: Sequence[int], field: str, names: Iterable[str]) -> Amounts:
    """Return the sum of a field over the nodes, by resource.

    DIVERGES (fault of Go): a NUMA node has 0 bytes of a size of huge pages that the machine does not have.
    Go: pkg/kubelet/cm/memorymanager/policy_static.go, (*staticPolicy).calculateHints: it follows a nil pointer, and the
    kubelet crashes.
    Why: a guaranteed pod that names such a size, even with an amount of 0, would crash the kubelet.
    Test: policy_static_test.py:test_a_size_of_huge_pages_that_the_machine_has_not,
    policy_static_test.py:test_nothing_of_huge_pages_that_the_machine_has_not
    """
    tables = [machine_state[node].memory_map for node in nodes]
    return {name: sum(getattr(table[name], field) for table in tables if name in table) for name in names}


def _covers(available: Amounts, requested: Amounts) -> bool:
    return all(available[name] >= size for name, size in requested.items())


def _can_be_used(machine_state: state.NUMANodeMap, nodes: Sequence[int]) -> bool:
    """Report whether the nodes can be used together.

    A single node must not belong to a group. Several nodes must be unused, or form exactly one existing group.
    """
    if len(nodes) == 1:
        return len(machine_state[nodes[0]].cells) <= 1
    return all(
        sorted(machine_state[node].cells) == sorted(nodes)
        for node in nodes
        if machine_state[node].number_of_assignments > 0
    )


def _is_affinity_satisfy_request(machine_state: state.NUMANodeMap, mask: bitmask.BitMask, requested: Amounts) -> bool:
    return _covers(_sum_of(machine_state, mask.get_bits(), "free", requested), requested)


def _is_affinity_violating_numa_allocations(machine_state: state.NUMANodeMap, mask: bitmask.BitMask) -> bool:
    """Report whether using these nodes together would conflict with existing groups of nodes."""
    nodes = mask.get_bits()
    return len(nodes) > 1 and not _can_be_used(machine_state, nodes)


def _memory_hints(hints: Hints) -> list[TopologyHint]:
    """Return the hints for regular memory, which are the same for all kinds of memory."""
    return hints.get(v1.RESOURCE_MEMORY) or []


def _nodes_of(hint: TopologyHint) -> bitmask.BitMask:
    return hint.numa_node_affinity or bitmask.BitMask()


def _find_best_hint(hints: Sequence[TopologyHint]) -> TopologyHint:
    """Return a preferred hint if there is one, with as few nodes as possible. `hints` must not be empty."""
    best = hints[0]
    for hint in hints[1:]:
        if hint.less_than(best):
            best = hint
    return best


def _update_expected_machine_state(
    expected: state.NUMANodeMap, blocks: list[state.Block], pod_uid: str, container_name: str
) -> None:
    """Add the blocks to the expected state. Raise ValueError for a block that the machine does not have."""
    for block in blocks:
        for node in block.numa_affinity:
            where = f"[memorymanager] (pod: {pod_uid}, container: {container_name}) the memory assignment uses"
            if node not in expected:
                raise ValueError(f"{where} the NUMA that does not exist")
            if block.size and block.type not in expected[node].memory_map:
                raise ValueError(f"{where} memory resource that does not exist")
        _update_machine_state(expected, block.numa_affinity, block.type, block.size)


def _are_machine_states_equal(found: state.NUMANodeMap, expected: state.NUMANodeMap) -> bool:
    """Compare two states, and log the first difference. The free memory of a group of nodes is compared as a sum.

    The order in which the group's containers were allocated is unknown, so another order may have used other nodes.
    """
    difference = next(_differences(found, expected), None)
    if difference is None:
        return True
    klog.info_s("Memory states for the NUMA node and resource are different", difference=difference)
    return False


def _differences(found: state.NUMANodeMap, expected: state.NUMANodeMap) -> Iterator[str]:
    if found.keys() != expected.keys():
        yield f"NUMA nodes {sorted(found)}, expected {sorted(expected)}"
        return
    for node, mine in found.items():
        other = expected[node]
        if mine.number_of_assignments != other.number_of_assignments:
            yield f"node {node} has {mine.number_of_assignments} assignments, expected {other.number_of_assignments}"
        if sorted(mine.cells) != sorted(other.cells):
            yield f"node {node} is used together with {mine.cells}, expected {other.cells}"
        if mine.memory_map.keys() != other.memory_map.keys():
            yield f"node {node} has {sorted(mine.memory_map)}, expected {sorted(other.memory_map)}"
            return
        for name in mine.memory_map:
            for field in ("total_mem_size", "system_reserved", "allocatable"):
                has, wants = getattr(mine.memory_map[name], field), getattr(other.memory_map[name], field)
                if has != wants:
                    yield f"node {node} has {has} bytes of {name} as {field}, expected {wants}"
            for field in ("free", "reserved"):
                has, wants = (_sum_of(states, mine.cells, field, (name,))[name] for states in (found, expected))
                if has != wants:
                    yield f"nodes {mine.cells} have {has} bytes of {name} {field}, expected {wants}"


if TYPE_CHECKING:

    def _check(policy: PolicyStatic) -> Policy:
        return policy
