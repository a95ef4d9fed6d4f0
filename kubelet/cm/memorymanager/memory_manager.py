"""Manage the memory of NUMA nodes.

Go: pkg/kubelet/cm/memorymanager/memory_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubelet.cm.containermap import ContainerRef, is_first_container, is_last_container, stale_containers
from kubelet.cm.memorymanager import state as memorystate
from kubelet.cm.memorymanager.policy_none import POLICY_TYPE_NONE, PolicyNone
from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core.v1 import helper as corev1helper

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.apis import config as kubeletconfig
    from kubelet.cadvisor import MachineInfo
    from kubelet.cm.containermap import ContainerMap, CouldRunFunc
    from kubelet.cm.memorymanager.policy import Policy
    from kubelet.cm.memorymanager.policy_static import SystemReservedMemory
    from kubelet.cm.topologymanager import HintProvider, Hints, Store
    from kubelet.cri import apis as internalapi

_STATE_FILE_NAME = "memory_manager_state"


class Manager:
    """Allocate memory to containers according to the policy, and keep the allocations across restarts.

    All methods are thread-safe. Callers must not allocate before `start`. The policy "None" allocates nothing, and the
    manager then tracks no containers.
    """

    def __init__(
        self,
        policy_name: str,
        machine_info: MachineInfo,
        node_allocatable_reservation: Mapping[str, Quantity],
        reserved_memory: Sequence[kubeletconfig.MemoryReservation],
        state_file_directory: str,
        affinity: Store,
    ) -> None:
        """Raise ValueError for an unknown policy, and for reservations that do not fit the machine."""
        self._policy = _new_policy(policy_name, machine_info, node_allocatable_reservation, reserved_memory, affinity)
        self._is_idle = policy_name == POLICY_TYPE_NONE
        self._state_file_directory = state_file_directory
        self._state: memorystate.State = memorystate.StateMemory()
        self._lock = threading.Lock()  # This lock serializes allocations and releases and guards the container map.
        self._allocatable_memory: list[memorystate.Block] = []

    def start(
        self,
        ctx: golang.Context,
        active_pods: Callable[[], Sequence[v1.Pod]],
        could_run: CouldRunFunc,
        sources_ready: config.SourcesReady,
        pod_status_provider: status.PodStatusProvider,
        container_runtime: internalapi.RuntimeService,
        initial_containers: ContainerMap,
    ) -> None:
        """Restore an earlier kubelet's allocations.

        Raise OSError, or ValueError if the state cannot be read or no longer fits the machine.
        """
        klog.info_s("Starting memorymanager", policy=self._policy.name())
        self._sources_ready = sources_ready
        self._active_pods = active_pods
        self._could_run = could_run
        self._container_map = initial_containers
        try:
            self._state = memorystate.StateCheckpoint(self._state_file_directory, _STATE_FILE_NAME, self._policy.name())
        except (OSError, ValueError) as err:
            klog.error_s(err, "Could not initialize checkpoint manager, please drain node and remove policy state file")
            raise
        self._policy.start(self._state)
        self._allocatable_memory = self._policy.get_allocatable_memory(self._state)
        klog.v(4).info_s("memorymanager started", policy=self._policy.name())

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        """Record the container's ID, and release the memory of init containers before it, which have ended."""
        if self._is_idle:
            return
        uid = pod.metadata.uid
        with self._lock:
            self._container_map.replace(uid, container.name, container_id)
            ended: set[ContainerRef] = set()
            for init_container in pod.spec.init_containers:
                if init_container.name == container.name:
                    break
                # A sidecar keeps running.
                if not podutil.is_restartable_init_container(init_container):
                    ended.add(ContainerRef(uid, init_container.name))
                    # A pod may have thousands of init containers. Each one's memory was already released when the next
                    # one started.
                    if self._state.get_memory_blocks(uid, init_container.name) is not None:
                        self._take_back_locked(uid, init_container.name)
            self._container_map.remove_by_container_refs(ended)

    def get_memory_numa_nodes(self, pod: v1.Pod, container: v1.Container) -> frozenset[int]:
        """Return the nodes of the container's memory; empty means that it may use any node."""
        blocks = self._state.get_memory_blocks(pod.metadata.uid, container.name) or ()
        nodes = frozenset(node for block in blocks for node in block.numa_affinity)
        keys = {"pod": klog.kobj(pod), "containerName": container.name}
        if nodes:
            klog.info_s("Memory affinity", **keys, numaNodes=sorted(nodes))
        else:
            klog.v(5).info_s("NUMA nodes not available for allocation", **keys)
        return nodes

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Allocate the container's memory before it starts. Raise ValueError if that is impossible."""
        if is_first_container(pod, container):
            self._remove_stale_state()
        with self._lock:
            try:
                # No container of the pod starts before the last one has its memory, so one write after that is enough.
                with self._state.together(is_last_container(pod, container)):
                    self._policy.allocate(self._state, pod, container)
            except ValueError as err:
                klog.error_s(err, "Allocate error", pod=klog.kobj(pod), containerName=container.name)
                raise

    def remove_container(self, container_id: str) -> None:
        """Release the container's memory."""
        with self._lock:
            try:
                pod_uid, container_name = self._container_map.get_container_ref(container_id)
            except LookupError as err:
                klog.error_s(err, "Failed to get container from container map", containerID=container_id)
                return
            self._policy_remove_container_by_ref_locked(pod_uid, container_name)

    def state(self) -> memorystate.Reader:
        return self._state

    def pods(self) -> set[str]:
        """Return the UIDs of the pods that have allocated memory."""
        return set(self._state.get_memory_assignments())

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> Hints:
        if is_first_container(pod, container):
            self._remove_stale_state()
        return self._policy.get_topology_hints(self._state, pod, container)

    def get_pod_topology_hints(self, pod: v1.Pod) -> Hints:
        self._remove_stale_state()
        return self._policy.get_pod_topology_hints(self._state, pod)

    def get_allocatable_memory(self) -> list[memorystate.Block]:
        """Return the memory that containers can get from each NUMA node."""
        return self._allocatable_memory

    def get_memory(self, pod_uid: str, container_name: str) -> list[memorystate.Block]:
        """Return the container's blocks, which may have size 0 if a later container reuses them."""
        return self._state.get_memory_blocks(pod_uid, container_name) or []

    def _remove_stale_state(self) -> None:
        """Release the memory of containers whose pods are gone.

        The lock is held throughout, so that a container that gets memory meanwhile does not lose it again.
        """
        # Before all sources are ready, every pod would seem to be gone.
        if self._is_idle or not self._sources_ready.all_ready():
            return
        with self._lock:
            assignments = self._state.get_memory_assignments()
            assigned = [ContainerRef(uid, name) for uid, containers in assignments.items() for name in containers]
            known = (*assigned, *self._container_map.values())
            removed: set[ContainerRef] = set()
            for ref in stale_containers(known, self._active_pods(), self._could_run):
                about = {"podUID": ref.pod_uid, "containerName": ref.container_name}
                klog.v(2).info_s("RemoveStaleState removing state", **about)
                with contain("Failed to release the memory of a container", **about):
                    self._take_back_locked(*ref)
                    removed.add(ref)
            self._container_map.remove_by_container_refs(removed)

    def _policy_remove_container_by_ref_locked(self, pod_uid: str, container_name: str) -> None:
        self._take_back_locked(pod_uid, container_name)
        self._container_map.remove_by_container_ref(pod_uid, container_name)

    def _take_back_locked(self, pod_uid: str, container_name: str) -> None:
        with self._state.together():
            self._policy.remove_container(self._state, pod_uid, container_name)


def _new_policy(
    policy_name: str,
    machine_info: MachineInfo,
    node_allocatable_reservation: Mapping[str, Quantity],
    reserved_memory: Sequence[kubeletconfig.MemoryReservation],
    affinity: Store,
) -> Policy:
    match policy_name:
        case "None":
            return PolicyNone()
        case "Static":
            # This module is imported lazily because few nodes use the static policy.
            from kubelet.cm.memorymanager.policy_static import PolicyStatic

            reserved = get_system_reserved_memory(machine_info, node_allocatable_reservation, reserved_memory)
            return PolicyStatic(machine_info, reserved, affinity)
        case "BestEffort":
            raise ValueError(f'policy "{policy_name}" is not available for platform "linux"')
        case _:
            raise ValueError(f'unknown policy: "{policy_name}"')


def get_system_reserved_memory(
    machine_info: MachineInfo,
    node_allocatable_reservation: Mapping[str, Quantity],
    reserved_memory: Sequence[kubeletconfig.MemoryReservation],
) -> SystemReservedMemory:
    """Return the memory that is reserved for the system on each NUMA node, in bytes.

    Raise ValueError for an unknown node, and if the sum differs from what the node's allocatable excludes.
    """
    from kubelet.cm.memorymanager.policy_static import as_int64

    _validate_reserved_memory(machine_info, node_allocatable_reservation, reserved_memory)
    converted: dict[int, dict[str, int]] = {node.id: {} for node in machine_info.topology}
    for reservation in reserved_memory:
        for name, quantity in reservation.limits.items():
            converted[reservation.numa_node][name] = as_int64(quantity)
    return converted


def _validate_reserved_memory(
    machine_info: MachineInfo,
    node_allocatable_reservation: Mapping[str, Quantity],
    reserved_memory: Sequence[kubeletconfig.MemoryReservation],
) -> None:
    totals = _get_total_memory_type_reserved(machine_info, reserved_memory)
    names = totals.keys() | {
        name
        for name in node_allocatable_reservation
        if name == v1.RESOURCE_MEMORY or corev1helper.is_huge_page_resource_name(name)
    }
    for name in sorted(names):
        reserved = totals.get(name, Quantity(0))
        node_allocatable = node_allocatable_reservation.get(name, Quantity(0))
        if reserved != node_allocatable:
            raise ValueError(
                f'the total amount "{reserved}" of type "{name}" is not equal to the value "{node_allocatable}" '
                "determined by Node Allocatable feature"
            )


def _get_total_memory_type_reserved(
    machine_info: MachineInfo, reserved_memory: Sequence[kubeletconfig.MemoryReservation]
) -> dict[str, Quantity]:
    nodes = {node.id for node in machine_info.topology}
    totals: dict[str, Quantity] = {}
    for reservation in reserved_memory:
        if reservation.numa_node not in nodes:
            raise ValueError(
                f"the reserved memory configuration references a NUMA node {reservation.numa_node} "
                "that does not exist on this machine"
            )
        for name, quantity in reservation.limits.items():
            totals[name] = totals.get(name, Quantity(0)).add(quantity)
    return totals


if TYPE_CHECKING:

    def _check(manager: Manager) -> HintProvider:
        return manager
