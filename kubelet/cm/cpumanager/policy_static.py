"""Define the policy that assigns exclusive CPUs to containers that request whole CPUs.

A container of a guaranteed pod that requests an integer number of CPUs has that many exclusive CPUs from its admission
until it is gone. All other containers share the rest. The CPUs form these sets:

- reserved: CPUs for the system. Containers share them too, unless strict-cpu-reservation is on, but no container gets
  them exclusively.
- shared: the default set of the state, which contains all CPUs that are not exclusive.
- assignable: the shared CPUs without the reserved ones. Exclusive CPUs are taken from this set.

When the shared set changes, the manager's reconciliation updates the containers that run on it.

Go: pkg/kubelet/cm/cpumanager/policy_static.go
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubelet import metrics
from kubelet.cm import admission, topologymanager
from kubelet.cm.cpumanager.cpu_assignment import (
    CPUSortingStrategy,
    take_by_topology_numa_distributed,
    take_by_topology_numa_packed,
)
from kubelet.cm.cpumanager.policy import POLICY_STATIC
from kubelet.cm.cpumanager.policy_options import new_static_policy_options, validate_static_policy_options
from kubelet.cm.cpumanager.state import State
from kubelet.cm.cpumanager.topology import Allocation, CPUTopology
from kubelet.cm.topologymanager import Hints, TopologyHint
from kubelet.cm.topologymanager.bitmask import BitMask, iterate_bit_masks
from pkg import klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.api import resource
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource as resourcehelper
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

if TYPE_CHECKING:
    from kubelet.cm.cpumanager.policy import Policy

ERROR_SMT_ALIGNMENT = "SMTAlignmentError"

_ZERO = resource.parse_quantity("0")
_PHYSICAL_CPU = (metrics.ALIGN_SCOPE_CONTAINER, metrics.ALIGNED_PHYSICAL_CPU)
_UNCORE_CACHE = (metrics.ALIGN_SCOPE_CONTAINER, metrics.ALIGNED_UNCORE_CACHE)


class SMTAlignmentError(admission.Error):
    """Signal that a container must get whole cores, but requests a fraction of one, or more than are free."""

    type = ERROR_SMT_ALIGNMENT

    def __init__(self, requested_cpus: int, cpus_per_core: int, available_physical_cpus: int | None = None) -> None:
        """Pass `available_physical_cpus` only if there are too few."""
        if available_physical_cpus is None:
            message = f"requested {requested_cpus} cpus not multiple cpus per core = {cpus_per_core}"
        else:
            message = (
                f"not enough free physical CPUs: available physical CPUs = {available_physical_cpus}, "
                f"requested CPUs = {requested_cpus}, CPUs per core = {cpus_per_core}"
            )
        super().__init__(f"SMT Alignment Error: {message}")


class StaticPolicy:
    """Implement Policy."""

    def __init__(
        self,
        topology: CPUTopology,
        num_reserved_cpus: int,
        reserved_cpus: CPUSet,
        affinity: topologymanager.Store,
        cpu_policy_options: Mapping[str, str],
    ) -> None:
        """Reserve CPUs. If `reserved_cpus` is empty, the first ones are reserved.

        Raise ValueError for bad options, or if the machine lacks the CPUs to reserve.
        """
        self.options = new_static_policy_options(cpu_policy_options)
        validate_static_policy_options(self.options, topology, affinity)
        self.cpu_group_size = topology.cpus_per_core()
        klog.info_s("Static policy created with configuration", options=self.options, cpuGroupSize=self.cpu_group_size)
        self.topology = topology
        self._affinity = affinity
        # `cpus_to_reuse` holds the CPUs of init containers of the last admitted pod, which the pod's other containers
        # can reuse.
        self.cpus_to_reuse: dict[str, CPUSet] = {}
        self.reserved_cpus = reserved_cpus or self._take_reserved(num_reserved_cpus)
        if len(self.reserved_cpus) != num_reserved_cpus:
            raise ValueError(
                "[cpumanager] unable to reserve the required amount of CPUs "
                f"(size of {self.reserved_cpus} did not equal {num_reserved_cpus})"
            )
        # This set includes all other CPUs of the same cores.
        self.reserved_physical_cpus = self._physical_cpus(self.reserved_cpus)
        klog.info_s(
            "Reserved CPUs not available for exclusive assignment",
            reservedSize=len(self.reserved_cpus),
            reserved=str(self.reserved_cpus),
            reservedPhysicalCPUs=str(self.reserved_physical_cpus),
        )

    def _take_reserved(self, number: int) -> CPUSet:
        try:
            return self._take_by_topology(self.topology.cpu_details.cpus(), number)
        except ValueError:
            return cpuset.new()

    def _physical_cpus(self, cpus: CPUSet) -> CPUSet:
        try:
            cores = [self.topology.cpu_core_id(cpu) for cpu in cpus]
        except ValueError as err:
            raise ValueError(
                f"[cpumanager] unable to build the reserved physical CPUs from the reserved set: {err}"
            ) from err
        return self.topology.cpu_details.cpus_in_cores(*cores)

    def name(self) -> str:
        return POLICY_STATIC

    def start(self, s: State) -> None:
        try:
            self._validate_state(s)
        except ValueError as err:
            klog.error_s(err, "Static policy invalid state, please drain node and remove policy state file")
            raise
        self._initialize_metrics(s)

    def _validate_state(self, s: State) -> None:
        """Raise ValueError if the state does not fit this machine and its reservations.

        DIVERGES (fault of Go): with strict-cpu-reservation, pods may have all CPUs that are not reserved.
        Go: pkg/kubelet/cm/cpumanager/policy_static.go, (*staticPolicy).validateState: it rejects an empty shared pool.
        Why: a kubelet that has assigned all of them would not start again until an administrator removes the file.
        Test: policy_static_test.py:test_start_again
        """
        assignments, default = s.get_cpu_assignments(), s.get_default_cpu_set()
        all_cpus = self.topology.cpu_details.cpus()
        if self.options.strict_cpu_reservation:
            all_cpus -= self.reserved_cpus
        if default.is_empty() and not assignments:
            s.set_default_cpu_set(all_cpus)
            klog.info_s("Static policy initialized", defaultCPUSet=str(all_cpus))
            return
        if default.is_empty() and not self.options.strict_cpu_reservation:
            raise ValueError("default cpuset cannot be empty")
        self._validate_reserved(default)
        known = default
        for pod_uid, containers in assignments.items():
            for name, cpus in containers.items():
                if default & cpus:
                    raise ValueError(
                        f'pod: {pod_uid}, container: {name} cpuset: "{cpus}" overlaps with default cpuset "{default}"'
                    )
                known |= cpus
        # CPUs may have disappeared or appeared while no kubelet ran.
        if known != all_cpus:
            raise ValueError(f'current set of available CPUs "{all_cpus}" doesn\'t match with CPUs in state "{known}"')

    def _validate_reserved(self, default: CPUSet) -> None:
        """Raise ValueError if the state's shared pool does not fit the reserved CPUs.

        The reservation may have changed, or an administrator may have edited the file.
        """
        shared = self.reserved_cpus & default
        if self.options.strict_cpu_reservation:
            if shared:
                raise ValueError(
                    f'some of strictly reserved cpus: "{shared}" are present in defaultCpuSet: "{default}"'
                )
        elif shared != self.reserved_cpus:
            raise ValueError(f'not all reserved cpus: "{self.reserved_cpus}" are present in defaultCpuSet: "{default}"')

    def get_allocatable_cpus(self, s: State) -> CPUSet:
        return self.topology.cpu_details.cpus() - self.reserved_cpus

    def get_available_cpus(self, s: State) -> CPUSet:
        """Return the allocatable CPUs that no container has exclusively."""
        return s.get_default_cpu_set() - self.reserved_cpus

    def get_available_physical_cpus(self, s: State) -> CPUSet:
        """Return the free CPUs whose cores have no reserved CPU."""
        return s.get_default_cpu_set() - self.reserved_physical_cpus

    def _update_cpus_to_reuse(self, pod: v1.Pod, container: v1.Container, cpus: CPUSet) -> None:
        uid = pod.metadata.uid
        reusable = self.cpus_to_reuse.get(uid, cpuset.new())
        inits = (init for init in pod.spec.init_containers if init.name == container.name)
        # A sidecar keeps running beside the containers that start after it, so they cannot reuse its CPUs.
        if (init := next(inits, None)) is not None and not podutil.is_restartable_init_container(init):
            reusable |= cpus
        else:
            reusable -= cpus
        self.cpus_to_reuse = {uid: reusable}

    def _enforce_smt_alignment(self, s: State, num_cpus: int) -> None:
        """Raise SMTAlignmentError if the container must get whole cores and cannot."""
        if not self.options.full_physical_cpus_only:
            return
        if num_cpus % self.cpu_group_size:
            raise SMTAlignmentError(num_cpus, self.cpu_group_size)
        # A core with a reserved CPU cannot be assigned as a whole.
        available = len(self.get_available_physical_cpus(s))
        if num_cpus > available:
            raise SMTAlignmentError(num_cpus, self.cpu_group_size, available)

    def allocate(self, s: State, pod: v1.Pod, container: v1.Container) -> None:
        about = {"pod": klog.kobj(pod), "podUID": pod.metadata.uid, "containerName": container.name}
        klog.info_s("Static policy: Allocate", **about)
        num_cpus = self.guaranteed_cpus(pod, container)
        if not num_cpus:
            return
        if resourcehelper.is_pod_level_resources_set(pod):
            klog.v(2).info_s(
                "CPU Manager allocation skipped, pod is using pod-level resources but the PodLevelResourceManagers "
                "feature gate is not enabled",
                **about,
            )
            return
        metrics.CPU_MANAGER_PINNING_REQUESTS_TOTAL.inc()
        try:
            self._allocate(s, pod, container, num_cpus)
        except Exception:
            self._count_failure()
            raise
        if self.options.full_physical_cpus_only:
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_PHYSICAL_CPU).inc()

    def _allocate(self, s: State, pod: v1.Pod, container: v1.Container, num_cpus: int) -> None:
        uid, name = pod.metadata.uid, container.name
        # DIVERGES (fault of Go): a container that already has its cores needs no free ones.
        # Go: pkg/kubelet/cm/cpumanager/policy_static.go, (*staticPolicy).Allocate: with full-pcpus-only, as many cores
        # as the container already has must be free.
        # Why: on a full node, running pods would be rejected when the kubelet restarts.
        # Test: policy_static_test.py:test_whole_cores_on_a_full_node_stay_with_their_container
        if (present := s.get_cpu_set(uid, name)) is not None:
            self._update_cpus_to_reuse(pod, container, present)
            klog.info_s(
                "Static policy: container already present in state, skipping", pod=klog.kobj(pod), containerName=name
            )
            return
        self._enforce_smt_alignment(s, num_cpus)
        hint = self._affinity.get_affinity(uid, name)
        klog.info_s("Topology Affinity", pod=klog.kobj(pod), containerName=name, affinity=hint)
        reusable = self.cpus_to_reuse.get(uid, cpuset.new())
        try:
            allocation = self._allocate_cpus(s, num_cpus, hint.numa_node_affinity, reusable)
        except ValueError as err:
            klog.error_s(err, "Unable to allocate CPUs", pod=klog.kobj(pod), containerName=name, numCPUs=num_cpus)
            raise
        s.set_cpu_set(uid, name, allocation.cpus)
        self._update_cpus_to_reuse(pod, container, allocation.cpus)
        self._update_metrics_on_allocate(s, allocation)
        cpu = metrics.RESOURCE_MANAGER_CPU
        metrics.RESOURCE_MANAGER_ALLOCATIONS_TOTAL.labels(cpu, metrics.RESOURCE_MANAGER_NODE).inc()
        metrics.RESOURCE_MANAGER_CONTAINER_ASSIGNMENTS.labels(cpu, metrics.RESOURCE_MANAGER_EXCLUSIVE_NODE).inc()

    def _count_failure(self) -> None:
        metrics.CPU_MANAGER_PINNING_ERRORS_TOTAL.inc()
        labels = metrics.RESOURCE_MANAGER_CPU, metrics.RESOURCE_MANAGER_NODE
        metrics.RESOURCE_MANAGER_ALLOCATION_ERRORS_TOTAL.labels(*labels).inc()
        if self.options.full_physical_cpus_only:
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE.labels(*_PHYSICAL_CPU).inc()

    def remove_container(self, s: State, pod_uid: str, container_name: str) -> None:
        klog.info_s("Static policy: RemoveContainer", podUID=pod_uid, containerName=container_name)
        to_release = s.get_cpu_set(pod_uid, container_name)
        if to_release is None:
            return
        s.delete(pod_uid, container_name)
        # CPUs that other containers of the pod reuse stay assigned.
        to_release -= cpuset.new().union(*s.get_cpu_assignments().get(pod_uid, {}).values())
        s.set_default_cpu_set(s.get_default_cpu_set() | to_release)
        self._update_metrics_on_release(s, to_release)

    def _allocate_cpus(
        self, s: State, num_cpus: int, numa_affinity: BitMask | None, reusable_cpus: CPUSet
    ) -> Allocation:
        """Take CPUs out of the shared set, first those of the given NUMA nodes."""
        klog.info_s("AllocateCPUs", numCPUs=num_cpus, socket=numa_affinity)
        allocatable = self.get_available_cpus(s) | reusable_cpus
        cpus = cpuset.new()
        if numa_affinity is not None:
            aligned = self._get_aligned_cpus(numa_affinity, allocatable)
            cpus = self._take_by_topology(aligned, min(len(aligned), num_cpus))
        cpus |= self._take_by_topology(allocatable - cpus, num_cpus - len(cpus))
        s.set_default_cpu_set(s.get_default_cpu_set() - cpus)
        allocation = Allocation(cpus, self.topology.check_alignment(cpus))
        klog.info_s("AllocateCPUs", result=allocation)
        return allocation

    def guaranteed_cpus(self, pod: v1.Pod, container: v1.Container) -> int:
        """Return the number of exclusive CPUs that the container must get."""
        qos = v1qos.get_pod_qos(pod)
        if qos != v1.POD_QOS_GUARANTEED:
            klog.v(5).info_s("Exclusive CPU allocation skipped, pod QoS is not guaranteed", pod=klog.kobj(pod), qos=qos)
            return 0
        quantity = container.resources.requests.get(v1.RESOURCE_CPU, _ZERO)
        if quantity.value() * 1000 != quantity.milli_value():
            klog.v(5).info_s(
                "Exclusive CPU allocation skipped, container requested non-integral CPUs",
                pod=klog.kobj(pod),
                containerName=container.name,
                cpu=quantity,
            )
            return 0
        return quantity.value()

    def _pod_guaranteed_cpus(self, pod: v1.Pod) -> int:
        """Return the number of CPUs that the pod's containers need at the same time.

        Init containers run one after the other; sidecars keep running.
        """
        by_inits = by_sidecars = 0
        for container in pod.spec.init_containers:
            requested = self.guaranteed_cpus(pod, container)
            if podutil.is_restartable_init_container(container):
                by_sidecars += requested
            else:
                by_inits = max(by_inits, by_sidecars + requested)
        by_apps = sum(self.guaranteed_cpus(pod, container) for container in pod.spec.containers)
        return max(by_inits, by_sidecars + by_apps)

    def _take_by_topology(self, available_cpus: CPUSet, num_cpus: int) -> CPUSet:
        options = self.options
        spread = options.distribute_cpus_across_cores
        strategy = CPUSortingStrategy.SPREAD if spread else CPUSortingStrategy.PACKED
        if options.distribute_cpus_across_numa:
            group_size = self.cpu_group_size if options.full_physical_cpus_only else 1
            return take_by_topology_numa_distributed(self.topology, available_cpus, num_cpus, group_size, strategy)
        by_cache = options.prefer_align_by_uncore_cache
        return take_by_topology_numa_packed(self.topology, available_cpus, num_cpus, strategy, by_cache)

    def get_topology_hints(self, s: State, pod: v1.Pod, container: v1.Container) -> Hints:
        requested = self.guaranteed_cpus(pod, container)
        if not requested or _skips_hints("CPU Manager hint", pod, containerName=container.name):
            return {}
        # After a restart of the kubelet the container already has its CPUs.
        allocated = s.get_cpu_set(pod.metadata.uid, container.name)
        if allocated is not None:
            return self._regenerate_hints(pod, allocated, requested)
        reusable = self.cpus_to_reuse.get(pod.metadata.uid, cpuset.new())
        return self._new_hints(s, pod, reusable, requested)

    def get_pod_topology_hints(self, s: State, pod: v1.Pod) -> Hints:
        requested = self._pod_guaranteed_cpus(pod)
        if not requested or _skips_hints("CPU Manager pod hint", pod):
            return {}
        assigned = cpuset.new()
        for container in itertools.chain(pod.spec.init_containers, pod.spec.containers):
            allocated = s.get_cpu_set(pod.metadata.uid, container.name)
            if allocated is None:
                continue
            wanted = self.guaranteed_cpus(pod, container)
            if len(allocated) != wanted:
                return self._regenerate_hints(pod, allocated, wanted)
            assigned |= allocated
        if len(assigned) == requested:
            return self._regenerate_hints(pod, assigned, requested)
        reusable = self.cpus_to_reuse.get(pod.metadata.uid, cpuset.new()) | assigned
        return self._new_hints(s, pod, reusable, requested)

    def _regenerate_hints(self, pod: v1.Pod, allocated: CPUSet, requested: int) -> Hints:
        if len(allocated) != requested:
            klog.info_s(
                "CPUs already allocated to container with different number than request",
                pod=klog.kobj(pod),
                requestedSize=requested,
                allocatedSize=len(allocated),
            )
            return {v1.RESOURCE_CPU: []}
        klog.info_s("Regenerating TopologyHints for CPUs already allocated", pod=klog.kobj(pod))
        return {v1.RESOURCE_CPU: list(self._generate_cpu_topology_hints(allocated, cpuset.new(), requested))}

    def _new_hints(self, s: State, pod: v1.Pod, reusable: CPUSet, requested: int) -> Hints:
        hints = self._generate_cpu_topology_hints(self.get_available_cpus(s), reusable, requested)
        klog.info_s("TopologyHints generated", pod=klog.kobj(pod), cpuHints=hints)
        return {v1.RESOURCE_CPU: list(hints)}

    def _generate_cpu_topology_hints(
        self, available_cpus: CPUSet, reusable_cpus: CPUSet, request: int
    ) -> list[TopologyHint]:
        """Return all sets of NUMA nodes that have enough CPUs and include all reusable ones.

        A set is preferred if it has no more nodes than the request would need on an idle machine.
        """
        details = self.topology.cpu_details
        all_nodes = details.numa_nodes().list()
        in_node = Counter(info.numa_node_id for info in details.values())
        free_in_node = Counter(details[cpu].numa_node_id for cpu in available_cpus if cpu in details)
        reused_in_node = Counter(details[cpu].numa_node_id for cpu in reusable_cpus if cpu in details)
        least_nodes, masks = len(all_nodes), []
        for mask in iterate_bit_masks(all_nodes):
            nodes = mask.get_bits()
            if sum(in_node[node] for node in nodes) >= request:
                least_nodes = min(least_nodes, mask.count())
            enough = sum(free_in_node[node] + reused_in_node[node] for node in nodes) >= request
            if enough and all(mask.is_set(node) for node in reused_in_node):
                masks.append(mask)
        return [TopologyHint(mask, self._is_preferred(mask, least_nodes)) for mask in masks]

    def _is_preferred(self, mask: BitMask, least_nodes: int) -> bool:
        by_socket = self.options.align_by_socket and self._is_socket_aligned(mask, least_nodes)
        return by_socket or mask.count() == least_nodes

    def _is_socket_aligned(self, mask: BitMask, least_nodes: int) -> bool:
        """Report whether the nodes belong to as few sockets as possible."""
        nodes_per_socket = self.topology.num_numa_nodes // self.topology.num_sockets
        if not nodes_per_socket:
            return False
        least_sockets = (least_nodes + nodes_per_socket - 1) // nodes_per_socket
        return len(self.topology.cpu_details.sockets_in_numa_nodes(*mask.get_bits())) == least_sockets

    def _get_aligned_cpus(self, numa_affinity: BitMask, allocatable_cpus: CPUSet) -> CPUSet:
        details, nodes = self.topology.cpu_details, numa_affinity.get_bits()
        if self.options.align_by_socket:
            return allocatable_cpus & details.cpus_in_sockets(*details.sockets_in_numa_nodes(*nodes))
        return allocatable_cpus & details.cpus_in_numa_nodes(*nodes)

    def _initialize_metrics(self, s: State) -> None:
        metrics.CPU_MANAGER_SHARED_POOL_SIZE_MILLI_CORES.set(len(self.get_available_cpus(s)) * 1000)
        # Create these metrics so that they are exported with the value 0.
        metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE.labels(*_PHYSICAL_CPU)
        metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_PHYSICAL_CPU)
        metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_UNCORE_CACHE)
        metrics.CPU_MANAGER_EXCLUSIVE_CPUS_ALLOCATION_COUNT.set(len(_get_total_assigned_exclusive_cpus(s)))
        self._update_allocation_per_numa_metric(s)

    def _update_metrics_on_allocate(self, s: State, allocation: Allocation) -> None:
        metrics.CPU_MANAGER_EXCLUSIVE_CPUS_ALLOCATION_COUNT.inc(len(allocation.cpus))
        metrics.CPU_MANAGER_SHARED_POOL_SIZE_MILLI_CORES.dec(len(allocation.cpus) * 1000)
        if allocation.aligned.uncore_cache:
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_UNCORE_CACHE).inc()
        self._update_allocation_per_numa_metric(s)

    def _update_metrics_on_release(self, s: State, cpus: CPUSet) -> None:
        metrics.CPU_MANAGER_EXCLUSIVE_CPUS_ALLOCATION_COUNT.dec(len(cpus))
        metrics.CPU_MANAGER_SHARED_POOL_SIZE_MILLI_CORES.inc(len(cpus) * 1000)
        self._update_allocation_per_numa_metric(s)

    def _update_allocation_per_numa_metric(self, s: State) -> None:
        """Set the metric of assigned CPUs for each NUMA node.

        DIVERGES (fault of Go): the metric of a NUMA node shows 0 after all its CPUs have been released.
        Go: pkg/kubelet/cm/cpumanager/policy_static.go, updateAllocationPerNUMAMetric: it shows the last number that was
        not 0.
        Why: the metric would show the NUMA node as in use after its last container has ended.
        Test: policy_static_test.py:test_figures
        """
        assigned = _get_total_assigned_exclusive_cpus(s)
        for node in self.topology.cpu_details.numa_nodes():
            count = len(assigned & self.topology.cpu_details.cpus_in_numa_nodes(node))
            metrics.CPU_MANAGER_ALLOCATION_PER_NUMA.labels(str(node)).set(count)


def _get_total_assigned_exclusive_cpus(s: State) -> CPUSet:
    return cpuset.new().union(
        *(cpus for containers in s.get_cpu_assignments().values() for cpus in containers.values())
    )


if TYPE_CHECKING:

    def _is_policy(policy: StaticPolicy) -> Policy:
        return policy


def _skips_hints(what: str, pod: v1.Pod, **keys: object) -> bool:
    """Report whether the pod gets no hints because it sets pod-level resources."""
    if not resourcehelper.is_pod_level_resources_set(pod):
        return False
    klog.v(3).info_s(
        f"{what} generation skipped, pod is using pod-level resources but the PodLevelResourceManagers feature gate is "
        "not enabled",
        pod=klog.kobj(pod),
        podUID=pod.metadata.uid,
        **keys,
    )
    return True
