"""Assign exclusive CPUs to containers, and keep all other containers off these CPUs.

Go: pkg/kubelet/cm/cpumanager/cpu_manager.go, cpu_manager_others.go
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cm import topologymanager
from kubelet.cm.containermap import ContainerMap, ContainerRef, CouldRunFunc, is_first_container, stale_containers
from kubelet.cm.cpumanager import state
from kubelet.cm.cpumanager.policy import POLICY_STATIC, Policy
from kubelet.cm.cpumanager.policy_none import POLICY_NONE, NonePolicy
from kubelet.cm.cpumanager.topology import CPUTopology, discover
from kubelet.cm.topologymanager import Hints
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util.runtime import contain
from pkg.utils import cpuset
from pkg.utils.cpuset import CPUSet

if TYPE_CHECKING:
    from kubelet import config, status
    from kubelet.cadvisor.info import v1 as cadvisorapi

ActivePodsFunc = Callable[[], Sequence[v1.Pod]]

CPU_MANAGER_STATE_FILE_NAME = "cpu_manager_state"


class RuntimeService(Protocol):
    """Define what the manager needs from the container runtime.

    Go: runtimeService
    """

    def update_container_resources(
        self, ctx: golang.Context, container_id: str, resources: runtimeapi.ContainerResources
    ) -> None: ...


class ReconciledContainer(NamedTuple):
    """Name a container that was reconciled; unknown parts are empty."""

    pod_name: str
    container_name: str = ""
    container_id: str = ""


class Manager:
    """Serve the topology manager as a hint provider, and the container lifecycle. All methods are thread-safe."""

    def __init__(
        self,
        cpu_policy_name: str,
        cpu_policy_options: Mapping[str, str],
        reconcile_period: float,
        machine_info: cadvisorapi.MachineInfo,
        specific_cpus: CPUSet,
        node_allocatable_reservation: Mapping[str, Quantity],
        state_file_directory: str,
        affinity: topologymanager.Store,
    ) -> None:
        """Create the policy.

        `reconcile_period` is in seconds. `specific_cpus` are the reserved CPUs; if the set is empty, the first CPUs are
        reserved. Raise ValueError for a policy or option that is unknown, or that does not fit the machine.
        """
        topo = discover(machine_info)
        self._policy = _new_policy(
            cpu_policy_name, cpu_policy_options, topo, specific_cpus, node_allocatable_reservation, affinity
        )
        # The none policy assigns no CPUs, so the manager tracks no containers.
        self._is_idle = self._policy.name() == POLICY_NONE
        if not self._is_idle and reconcile_period <= 0:
            raise ValueError(f"cpuManagerReconcilePeriod must be greater than 0 seconds, not {reconcile_period:g}")
        self._reconcile_period = reconcile_period
        self._state_file_directory = state_file_directory
        self._all_cpus = topo.cpu_details.cpus()
        self._allocatable_cpus = cpuset.new()
        # A message on this channel tells the reconciliation that the shared pool has changed.
        self._wake: golang.Channel[None] = golang.Channel(1)
        self._lock = threading.Lock()  # This lock serializes allocations and releases and guards the fields below.
        self._state: state.State = state.StateMemory()
        # This state holds the CPU sets that were last written to the containers.
        self._last_update_state = state.StateMemory()
        self._container_map = ContainerMap()
        # `start` sets these fields before the first pod is admitted.
        self._sources_ready: config.SourcesReady | None = None
        self._active_pods: ActivePodsFunc = list
        self._could_run: CouldRunFunc = lambda pod_uid: False
        self._pod_status_provider: status.PodStatusProvider | None = None
        self._container_runtime: RuntimeService | None = None

    def start(
        self,
        ctx: golang.Context,
        active_pods: ActivePodsFunc,
        could_run: CouldRunFunc,
        sources_ready: config.SourcesReady,
        pod_status_provider: status.PodStatusProvider,
        container_runtime: RuntimeService,
        initial_containers: ContainerMap,
    ) -> None:
        """Restore the state, and start the thread that reconciles until `ctx` is done.

        Raise ValueError for a state that is corrupt or does not fit the machine, and OSError.
        """
        klog.info_s("Starting CPU manager", policy=self._policy.name())
        klog.info_s("Reconciling", reconcilePeriod=self._reconcile_period)
        self._sources_ready = sources_ready
        self._active_pods = active_pods
        self._could_run = could_run
        self._pod_status_provider = pod_status_provider
        self._container_runtime = container_runtime
        self._container_map = initial_containers
        try:
            self._state = state.StateCheckpoint(
                self._state_file_directory, CPU_MANAGER_STATE_FILE_NAME, self._policy.name(), self._container_map
            )
        except (ValueError, OSError) as err:
            klog.error_s(err, "Could not initialize checkpoint manager, please drain node and remove policy state file")
            raise
        self._policy.start(self._state)
        klog.v(4).info_s("CPU manager started", policy=self._policy.name())
        self._allocatable_cpus = self._policy.get_allocatable_cpus(self._state)
        if not self._is_idle:
            golang.go(self._run, ctx, name="cpu-manager")

    def _run(self, ctx: golang.Context) -> None:
        """Reconcile once in a period, and whenever the shared pool has changed.

        DIVERGES (fault of Go): the kubelet updates containers at once when the CPU pool that they share has changed.
        Go: pkg/kubelet/cm/cpumanager/cpu_manager.go, (*manager).Start: it updates them once in a period.
        Why: until then they would run on another container's exclusive CPUs, by default for up to 10 seconds.
        Test: cpu_manager_test.py:test_who_shares_is_told_as_soon_as_somebody_gets_or_leaves_processors
        """
        while ctx.err() is None:
            try:
                self.reconcile_state(ctx)
            except Exception as err:
                # The next reconciliation follows soon.
                klog.error_s(err, "Reconciliation of CPUs failed", stacktrace=klog.stacktrace(err))
            golang.select(self._wake, ctx.done(), timeout=self._reconcile_period)

    def allocate(self, pod: v1.Pod, container: v1.Container) -> None:
        """Assign CPUs to the container. Raise ValueError or an admission.Error if there are not enough."""
        if is_first_container(pod, container):
            self._remove_stale_state()
        with self._lock:
            before = self._state.get_default_cpu_set()
            try:
                with self._state.together():
                    self._policy.allocate(self._state, pod, container)
            except Exception as err:
                klog.error_s(err, "Allocate error", pod=klog.kobj(pod), containerName=container.name)
                raise
            self._wake_if_changed_locked(before)

    def _wake_if_changed_locked(self, before: CPUSet) -> None:
        if self._state.get_default_cpu_set() != before:
            self._wake.try_send(None)

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        """Record a container that was created with the CPUs of get_cpu_affinity."""
        if self._is_idle:
            return
        uid = pod.metadata.uid
        with self._lock:
            cpus = self._state.get_cpu_set(uid, container.name)
            if cpus is not None:
                self._last_update_state.set_cpu_set(uid, container.name, cpus)
            self._container_map.replace(uid, container.name, container_id)
        klog.v(4).info_s(
            "Added Container",
            pod=klog.kobj(pod),
            podUID=uid,
            containerName=container.name,
            containerID=container_id,
        )

    def remove_container(self, container_id: str) -> None:
        """Release the CPUs of a container that is permanently gone, and stop updating it."""
        with self._lock:
            try:
                pod_uid, container_name = self._container_map.get_container_ref(container_id)
            except LookupError:
                return
            self._remove_by_ref_locked(pod_uid, container_name)

    def _remove_by_ref_locked(self, pod_uid: str, container_name: str) -> None:
        self._take_back_locked(pod_uid, container_name)
        self._container_map.remove_by_container_ref(pod_uid, container_name)

    def _take_back_locked(self, pod_uid: str, container_name: str) -> None:
        with self._state.together():
            self._policy.remove_container(self._state, pod_uid, container_name)
        self._last_update_state.delete(pod_uid, container_name)

    def state(self) -> state.Reader:
        return self._state

    def pods(self) -> set[str]:
        """Return the UIDs of the pods that have exclusive CPUs."""
        return set(self._state.get_cpu_assignments())

    def get_topology_hints(self, pod: v1.Pod, container: v1.Container) -> Hints:
        if is_first_container(pod, container):
            self._remove_stale_state()
        with self._lock:
            return self._policy.get_topology_hints(self._state, pod, container)

    def get_pod_topology_hints(self, pod: v1.Pod) -> Hints:
        self._remove_stale_state()
        with self._lock:
            return self._policy.get_pod_topology_hints(self._state, pod)

    def get_allocatable_cpus(self) -> CPUSet:
        """Return all CPUs that containers can have exclusively, whether assigned or not."""
        return self._allocatable_cpus

    def get_all_cpus(self) -> CPUSet:
        """Return all CPUs of the machine."""
        return self._all_cpus

    def _remove_stale_state(self) -> None:
        """Release the CPUs of containers that are gone, once all sources of pods are ready.

        The lock is held throughout, so that a container that gets CPUs meanwhile does not lose them again.
        """
        if self._is_idle or self._sources_ready is None or not self._sources_ready.all_ready():
            return
        with self._lock:
            assignments = self._state.get_cpu_assignments()
            assigned = [ContainerRef(pod_uid, name) for pod_uid, names in assignments.items() for name in names]
            before = self._state.get_default_cpu_set()
            known = (*assigned, *self._container_map.values())
            removed: set[ContainerRef] = set()
            for ref in stale_containers(known, self._active_pods(), self._could_run):
                about = {"podUID": ref.pod_uid, "containerName": ref.container_name}
                klog.v(2).info_s("RemoveStaleState: removing container", **about)
                with contain("Failed to release the CPUs of a container", **about):
                    self._take_back_locked(*ref)
                    removed.add(ref)
            self._container_map.remove_by_container_refs(removed)
            self._wake_if_changed_locked(before)

    def reconcile_state(self, ctx: golang.Context) -> tuple[list[ReconciledContainer], list[ReconciledContainer]]:
        """Write the current CPU sets to the running containers; return the successes and the failures."""
        success: list[ReconciledContainer] = []
        failure: list[ReconciledContainer] = []
        self._remove_stale_state()
        for pod in self._active_pods():
            with contain("Reconciliation of a pod's CPUs failed", ctx, pod=klog.kobj(pod)):
                self._reconcile_pod(ctx, pod, success, failure)
        return success, failure

    def _reconcile_pod(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        success: list[ReconciledContainer],
        failure: list[ReconciledContainer],
    ) -> None:
        assert self._pod_status_provider is not None
        pod_status = self._pod_status_provider.get_pod_status(pod.metadata.uid)
        if pod_status is None:
            klog.v(5).info_s("ReconcileState: skipping pod; status not found", pod=klog.kobj(pod))
            failure.append(ReconciledContainer(pod.metadata.name))
            return
        statuses = _container_statuses_by_name(pod_status)
        for container in _containers(pod):
            self._reconcile_container(ctx, pod, statuses.get(container.name), container, success, failure)

    def _reconcile_container(
        self,
        ctx: golang.Context,
        pod: v1.Pod,
        container_status: v1.ContainerStatus | None,
        container: v1.Container,
        success: list[ReconciledContainer],
        failure: list[ReconciledContainer],
    ) -> None:
        about = {"pod": klog.kobj(pod), "containerName": container.name}
        container_id = _id_of(container_status)
        if container_status is None or not container_id:
            klog.v(5).info_s("ReconcileState: skipping container; ID not found in pod status", **about)
            failure.append(ReconciledContainer(pod.metadata.name, container.name))
            return
        found = container_status.state
        # A terminated container may be about to restart. It is not removed here, so that it keeps its exclusive CPUs.
        if found.terminated is not None and found.waiting is None:
            klog.v(4).info_s("ReconcileState: ignoring terminated container", **about, containerID=container_id)
            return
        if found.running is None or found.waiting is not None:
            klog.v(4).info_s("ReconcileState: skipping container; container still in the waiting state", **about)
            failure.append(ReconciledContainer(pod.metadata.name, container.name))
            return
        reconciled = ReconciledContainer(pod.metadata.name, container.name, container_id)
        (success if self._update_container(ctx, pod, reconciled) else failure).append(reconciled)

    def _update_container(self, ctx: golang.Context, pod: v1.Pod, container: ReconciledContainer) -> bool:
        """Write the CPU set to a running container, unless it has that set; report whether it has it now."""
        uid, name, container_id = pod.metadata.uid, container.container_name, container.container_id
        with self._lock:
            # After a restart of the kubelet the map may lack the container.
            self._container_map.add(uid, name, container_id)
        cpus = self._state.get_cpu_set_or_default(uid, name)
        about = {"pod": klog.kobj(pod), "containerName": name, "containerID": container_id, "cpuSet": str(cpus)}
        if cpus.is_empty():
            klog.v(2).info_s("ReconcileState: skipping container; empty cpuset assigned", **about)
            return False
        if cpus == self._last_update_state.get_cpu_set_or_default(uid, name):
            return True
        klog.v(5).info_s("ReconcileState: updating container", **about)
        try:
            self._update_container_cpu_set(ctx, container_id, cpus)
        except Exception as err:
            # The runtime may be unavailable, or the container gone; the next reconciliation tries again.
            klog.error_s(err, "ReconcileState: failed to update container", **about)
            return False
        self._last_update_state.set_cpu_set(uid, name, cpus)
        return True

    def _update_container_cpu_set(self, ctx: golang.Context, container_id: str, cpus: CPUSet) -> None:
        assert self._container_runtime is not None
        linux = runtimeapi.LinuxContainerResources(cpuset_cpus=str(cpus))
        self._container_runtime.update_container_resources(
            ctx, container_id, runtimeapi.ContainerResources(linux=linux)
        )

    def get_exclusive_cpus(self, pod_uid: str, container_name: str) -> CPUSet:
        """Return the container's exclusive CPUs."""
        return self._state.get_cpu_set(pod_uid, container_name) or cpuset.new()

    def get_cpu_affinity(self, pod_uid: str, container_name: str) -> CPUSet:
        """Return the CPUs on which the container may run; empty means all."""
        return self._state.get_cpu_set_or_default(pod_uid, container_name)


def _new_policy(
    name: str,
    options: Mapping[str, str],
    topo: CPUTopology,
    specific_cpus: CPUSet,
    node_allocatable_reservation: Mapping[str, Quantity],
    affinity: topologymanager.Store,
) -> Policy:
    if name == POLICY_NONE:
        try:
            return NonePolicy(options)
        except ValueError as err:
            raise ValueError(f"new none policy error: {err}") from err
    if name != POLICY_STATIC:
        raise ValueError(f'unknown policy: "{name}"')
    # This module is imported lazily because few nodes use the static policy, and all must start fast.
    from kubelet.cm.cpumanager.policy_static import StaticPolicy

    klog.info_s("Detected CPU topology", topology=topo)
    num_reserved_cpus = _num_reserved_cpus(node_allocatable_reservation)
    try:
        return StaticPolicy(topo, num_reserved_cpus, specific_cpus, affinity, options)
    except ValueError as err:
        raise ValueError(f"new static policy error: {err}") from err


def _num_reserved_cpus(node_allocatable_reservation: Mapping[str, Quantity]) -> int:
    """Return the number of reserved CPUs.

    The number is rounded up, because the rest of a partly reserved CPU cannot be assigned exclusively.
    """
    reserved = node_allocatable_reservation.get(v1.RESOURCE_CPU)
    if reserved is None:
        raise ValueError("[cpumanager] unable to determine reserved CPU resources for static policy")
    if reserved.is_zero():
        # Without a reservation, no CPU might be left for containers without exclusive CPUs.
        raise ValueError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
        )
    return (reserved.milli_value() + 999) // 1000


def _containers(pod: v1.Pod) -> Iterator[v1.Container]:
    return itertools.chain(pod.spec.init_containers, pod.spec.containers)


def _container_statuses_by_name(pod_status: v1.PodStatus) -> dict[str, v1.ContainerStatus]:
    """Return all statuses by name in one pass, because a pod may have thousands of containers."""
    statuses = itertools.chain(pod_status.init_container_statuses, pod_status.container_statuses)
    return {found.name: found for found in statuses}


def _id_of(container_status: v1.ContainerStatus | None) -> str:
    if container_status is None or not container_status.container_id:
        return ""
    return kubecontainer.parse_container_id(container_status.container_id).id


if TYPE_CHECKING:

    def _is_hint_provider(manager: Manager) -> topologymanager.HintProvider:
        return manager
