"""The policy that gives whole processors to containers that ask for them.

A container of a guaranteed pod that requests an integer number of processors gets so many for itself, from its
admission until it is gone. All others share the rest:

- reserved: for the system; containers share them too (unless strict-cpu-reservation), but nobody gets them alone;
- shared: the state's default set: all that nobody has alone;
- assignable: shared without reserved, from which exclusive ones are taken.

Containers that run in the shared set are told by the manager's reconciliation when it changes.

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
    """Whole cores were wanted, but the number is none of whole cores, or there are not so many."""

    type = ERROR_SMT_ALIGNMENT

    def __init__(self, requested_cpus: int, cpus_per_core: int, available_physical_cpus: int | None = None) -> None:
        """The last is given if there are too few."""
        if available_physical_cpus is None:
            message = f"requested {requested_cpus} cpus not multiple cpus per core = {cpus_per_core}"
        else:
            message = (
                f"not enough free physical CPUs: available physical CPUs = {available_physical_cpus}, "
                f"requested CPUs = {requested_cpus}, CPUs per core = {cpus_per_core}"
            )
        super().__init__(f"SMT Alignment Error: {message}")


class StaticPolicy:
    """See Policy."""

    def __init__(
        self,
        topology: CPUTopology,
        num_reserved_cpus: int,
        reserved_cpus: CPUSet,
        affinity: topologymanager.Store,
        cpu_policy_options: Mapping[str, str],
    ) -> None:
        """reserved_cpus may be empty: then the first ones are reserved.

        Raises ValueError for bad options, or if the machine has not what is to be reserved.
        """
        self.options = new_static_policy_options(cpu_policy_options)
        validate_static_policy_options(self.options, topology, affinity)
        self.cpu_group_size = topology.cpus_per_core()
        klog.info_s("Static policy created with configuration", options=self.options, cpuGroupSize=self.cpu_group_size)
        self.topology = topology
        self._affinity = affinity
        # What init containers of the pod that is admitted last had, and its other containers can have.
        self.cpus_to_reuse: dict[str, CPUSet] = {}
        self.reserved_cpus = reserved_cpus or self._take_reserved(num_reserved_cpus)
        if len(self.reserved_cpus) != num_reserved_cpus:
            raise ValueError(
                "[cpumanager] unable to reserve the required amount of CPUs "
                f"(size of {self.reserved_cpus} did not equal {num_reserved_cpus})"
            )
        # With all other processors of the same cores.
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
        """Raises ValueError when the state does not fit this machine and these reservations.

        DIVERGES (fault of Go): with strict-cpu-reservation, pods may have all CPUs that are not reserved.
        Go: pkg/kubelet/cm/cpumanager/policy_static.go, (*staticPolicy).validateState: an empty shared pool is refused.
        Why: a kubelet that has given out all of them would not start again until somebody removes the file.
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
        # Some may have gone, or come, while no kubelet ran.
        if known != all_cpus:
            raise ValueError(f'current set of available CPUs "{all_cpus}" doesn\'t match with CPUs in state "{known}"')

    def _validate_reserved(self, default: CPUSet) -> None:
        """The reservation may have changed."""
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
        """Those of them that nobody has."""
        return s.get_default_cpu_set() - self.reserved_cpus

    def get_available_physical_cpus(self, s: State) -> CPUSet:
        """Those that are not on a core with a reserved one either."""
        return s.get_default_cpu_set() - self.reserved_physical_cpus

    def _update_cpus_to_reuse(self, pod: v1.Pod, container: v1.Container, cpus: CPUSet) -> None:
        uid = pod.metadata.uid
        reusable = self.cpus_to_reuse.get(uid, cpuset.new())
        inits = (init for init in pod.spec.init_containers if init.name == container.name)
        # A sidecar goes on beside the containers that start after it.
        if (init := next(inits, None)) is not None and not podutil.is_restartable_init_container(init):
            reusable |= cpus
        else:
            reusable -= cpus
        self.cpus_to_reuse = {uid: reusable}

    def _enforce_smt_alignment(self, s: State, num_cpus: int) -> None:
        """Raises SMTAlignmentError if whole cores are wanted and cannot be had."""
        if not self.options.full_physical_cpus_only:
            return
        if num_cpus % self.cpu_group_size:
            raise SMTAlignmentError(num_cpus, self.cpu_group_size)
        # A core of which one processor is reserved cannot be had as a whole.
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
        # DIVERGES (fault of Go): a container that has its cores already needs no free ones.
        # Go: pkg/kubelet/cm/cpumanager/policy_static.go, (*staticPolicy).Allocate: with full-pcpus-only, as many cores
        # as the container has must be free once more.
        # Why: on a full node, pods that run would be turned away when the kubelet is restarted.
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
        # What other containers of the pod took over stays theirs.
        to_release -= cpuset.new().union(*s.get_cpu_assignments().get(pod_uid, {}).values())
        s.set_default_cpu_set(s.get_default_cpu_set() | to_release)
        self._update_metrics_on_release(s, to_release)

    def _allocate_cpus(
        self, s: State, num_cpus: int, numa_affinity: BitMask | None, reusable_cpus: CPUSet
    ) -> Allocation:
        """Takes them out of the shared set: first what the NUMA nodes have, then the others."""
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
        """How many processors the container is to have alone."""
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
        """How many its containers have at once: init containers run one after the other, sidecars go on."""
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
        # It has them already after a restart of the kubelet.
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
        """All sets of NUMA nodes that have what is requested, and all that is reused.

        Preferred are those of as few nodes as would do if all processors were free.
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
        """Whether the nodes are of as few sockets as can be."""
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
        # So that they are there with 0.
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
        """Tells of each NUMA node how many of its processors are given out.

        DIVERGES (fault of Go): the metric of a NUMA node whose processors have all come back shows 0.
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
    """Whether the pod is admitted wherever there is room, for it has resources of its own."""
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
