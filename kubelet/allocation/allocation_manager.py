"""Admits pods and resizes, and keeps what each pod was given.

Go: pkg/kubelet/allocation/allocation_manager.go
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import threading
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kubelet import events, lifecycle, metrics
from kubelet.allocation import state
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util.runtime import contain
from pkg.apis.core.v1.helper import qos as v1qos
from pkg.component_helpers import resource as resourcehelper

if TYPE_CHECKING:
    from kubelet import config, status
    from pkg.client_go.tools import record

# The file below the kubelet's root directory that says what each pod was given.
ALLOCATED_PODS_STATE_FILE = "allocated_pods_state"

# Seconds until resizes that wait are tried again: before all sources have spoken, and after.
INITIAL_RETRY_DELAY = 30.0
RETRY_DELAY = 180.0

# Why resizes that wait are tried again, as the metric counts it.
TRIGGER_REASON_POD_RESIZED = "pod_resized"
TRIGGER_REASON_POD_UPDATED = "pod_updated"
TRIGGER_REASON_PODS_ADDED = "pods_added"
TRIGGER_REASON_PODS_REMOVED = "pods_removed"
TRIGGER_REASON_POD_TERMINATED = "pod_terminated"
_TRIGGER_REASON_PERIODIC = "periodic_retry"

_ZERO = resource.new_quantity(0)
_LATEST = datetime.datetime.max.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class AllocatedPod:
    """A pod with the resources that it was given in place of those that it wants."""

    # The pod itself if it requests what was allocated to it, else a copy.
    pod: v1.Pod
    # Whether the pod wants something else than it was given.
    differs: bool


class _Retry(enum.Enum):
    """What another try to resize a pod has come to."""

    GIVEN = enum.auto()
    WAITS = enum.auto()
    INFEASIBLE = enum.auto()


class Manager:
    """Gives resources to pods. Thread-safe; one pod is admitted or resized at a time."""

    def __init__(
        self,
        checkpoint_directory: str,
        status_manager: status.Manager,
        trigger_pod_sync: Callable[[v1.Pod], None],
        get_active_pods: Callable[[], list[v1.Pod]],
        get_pod_by_uid: Callable[[types.UID], v1.Pod | None],
        sources_ready: config.SourcesReady,
        recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        """Reads what an earlier kubelet gave. Raises OSError."""
        self._allocated = _new_state(checkpoint_directory)
        self._admit_handlers: list[lifecycle.PodAdmitHandler] = []
        self._status_manager = status_manager
        self._trigger_pod_sync = trigger_pod_sync
        self._get_active_pods = get_active_pods
        self._get_pod_by_uid = get_pod_by_uid
        self._sources_ready = sources_ready
        self._recorder = recorder
        self._clock = clock or clocklib.RealClock()
        # Set once by run.
        self._ticker: golang.Ticker | None = None
        # Held while a pod or a resize is admitted, so that nothing is given twice; guards the fields below.
        self._allocation_lock = threading.Lock()
        self._pods_with_pending_resizes: list[types.UID] = []
        # What ends pods, for each critical one that lacks resources for its resize; and those that were ended so.
        self._rooms_to_make: list[Callable[[], list[v1.Pod]]] = []
        self._preempted: set[types.UID] = set()
        # A message says that there is room to be made.
        self._room_is_wanted: golang.Channel[None] = golang.Channel(1)

    def run(self, ctx: golang.Context) -> None:
        """Start the thread that tries again the resizes that wait; it ends with ctx."""
        self._ticker = self._clock.new_ticker(INITIAL_RETRY_DELAY)
        golang.go(self._retry_periodically, ctx, self._ticker, name="allocation-manager")

    def _retry_periodically(self, ctx: golang.Context, ticker: golang.Ticker) -> None:
        try:
            while not golang.select(ticker.channel, self._room_is_wanted, ctx.done()).took(ctx.done()):
                with contain("Failed to retry the pending resizes", ctx):
                    self._make_room()
                    for pod in self._retry_pending_resizes(_TRIGGER_REASON_PERIODIC):
                        klog.info_s("Successfully retried resize after timeout", pod=klog.kobj(pod))
        except golang.Canceled:
            # It waited for pods that are preempted, as the kubelet was stopped.
            if ctx.err() is None:
                raise
        finally:
            ticker.stop()

    def _make_room(self) -> None:
        """End the pods that are in the way of the first resize; without the lock, for it takes their grace periods.

        Meanwhile the other resizes may be withdrawn, or have room: the retry that follows says who is in the way then.
        """
        with self._allocation_lock:
            if not self._rooms_to_make:
                return
            make_room, self._rooms_to_make = self._rooms_to_make[0], []
        ended = {pod.metadata.uid for pod in make_room()}
        with self._allocation_lock:
            self._preempted |= ended

    def _next_retry_locked(self, delay: float) -> None:
        if self._ticker is not None:
            self._ticker.reset(delay)

    def retry_pending_resizes(self, trigger: str) -> None:
        """Try again all resizes that wait; `trigger` says what gave hope."""
        self._retry_pending_resizes(trigger)

    def _retry_pending_resizes(self, trigger: str) -> list[v1.Pod]:
        """The pods whose resizes need not wait any longer."""
        with self._allocation_lock:
            if not self._sources_ready.all_ready():
                klog.v(4).info_s("Skipping evaluation of pending resizes; sources are not ready")
                self._next_retry_locked(INITIAL_RETRY_DELAY)
                return []
            self._next_retry_locked(RETRY_DELAY)
            self._rooms_to_make = []
            still_pending: list[types.UID] = []
            successful: list[v1.Pod] = []
            for uid in self._pods_with_pending_resizes:
                pod = self._get_pod_by_uid(uid)
                if pod is None:
                    klog.v(4).info_s("Pod not found; removing from pending resizes", podUID=uid)
                    continue
                outcome = _Retry.WAITS
                with contain("Failed to retry a resize", pod=klog.kobj(pod), podUID=uid):
                    outcome = self._retry_resize_locked(pod, trigger)
                if outcome is _Retry.GIVEN:
                    successful.append(pod)
                elif outcome is _Retry.WAITS:
                    still_pending.append(uid)
            self._pods_with_pending_resizes = still_pending
            if self._rooms_to_make:
                self._room_is_wanted.try_send(None)
            return successful

    def _retry_resize_locked(self, pod: v1.Pod, trigger: str) -> _Retry:
        """Give the pod what it wants, if that can be. Has it synced if it has something new, or other conditions."""
        uid = pod.metadata.uid
        conditions = self._status_manager.get_pod_resize_conditions(uid)
        was_deferred = self._status_manager.is_pod_resize_deferred(uid)
        allocated, outcome = False, _Retry.WAITS
        try:
            allocated = self._handle_pod_resources_resize(pod)
        except OSError as err:
            # The checkpoint could not be written; the resize waits until it can.
            klog.error_s(err, "Failed to handle pod resources resize", pod=klog.kobj(pod))
        else:
            if self._status_manager.is_pod_resize_deferred(uid):
                klog.v(4).info_s("Pod resize is deferred; will reevaluate later", pod=klog.kobj(pod))
            elif self._status_manager.is_pod_resize_infeasible(uid):
                outcome = _Retry.INFEASIBLE
                klog.v(4).info_s("Pod resize is infeasible", pod=klog.kobj(pod))
            else:
                klog.v(4).info_s("Pod resize successfully allocated", pod=klog.kobj(pod))
                outcome = _Retry.GIVEN
                if was_deferred:
                    metrics.POD_DEFERRED_ACCEPTED_RESIZES.labels(trigger).inc()
        now = self._status_manager.get_pod_resize_conditions(uid)
        if allocated or not codec.semantic_equal(conditions, now):
            self._trigger_pod_sync(pod)
        return outcome

    def push_pending_resize(self, uid: types.UID) -> None:
        """Note that the pod wants to be resized; retry_pending_resizes looks at it."""
        with self._allocation_lock:
            if uid not in self._pods_with_pending_resizes:
                self._pods_with_pending_resizes.append(uid)
                self._sort_pending_resizes_locked()

    def _sort_pending_resizes_locked(self) -> None:
        """First those that want no more than they have, then by priority, by QoS class, by how long they wait."""
        pending: list[v1.Pod] = []
        for uid in self._pods_with_pending_resizes:
            pod = self._get_pod_by_uid(uid)
            if pod is None:
                klog.v(4).info_s("Pod not found; removing from pending resizes", podUID=uid)
            else:
                pending.append(pod)
        pending.sort(
            key=lambda pod: (
                self._is_resize_increasing_requests(pod),
                -(pod.spec.priority or 0),
                v1qos.get_pod_qos(pod) != v1.POD_QOS_GUARANTEED,
                self._pending_since(pod.metadata.uid),
            )
        )
        self._pods_with_pending_resizes = [pod.metadata.uid for pod in pending]

    def _pending_since(self, uid: types.UID) -> datetime.datetime:
        conditions = self._status_manager.get_pod_resize_conditions(uid)
        times = (c.last_transition_time for c in conditions if c.type == v1.POD_RESIZE_PENDING)
        return next(times, None) or _LATEST

    def _is_resize_increasing_requests(self, pod: v1.Pod) -> bool:
        allocated = self.update_pod_from_allocation(pod)
        if not allocated.differs:
            return False
        opts = resourcehelper.PodResourcesOptions(
            skip_pod_level_resources=not features.feature_gate.enabled(features.POD_LEVEL_RESOURCES)
        )
        old = resourcehelper.pod_requests(allocated.pod, opts)
        new = resourcehelper.pod_requests(pod, opts)
        return any(new.get(r, _ZERO).cmp(old.get(r, _ZERO)) > 0 for r in (v1.RESOURCE_MEMORY, v1.RESOURCE_CPU))

    def has_pending_resizes(self) -> bool:
        """Whether a pod wants to be resized and is not yet."""
        with self._allocation_lock:
            return bool(self._pods_with_pending_resizes)

    # ---- What pods have ----

    def get_container_resource_allocation(
        self, pod_uid: types.UID, container_name: str
    ) -> v1.ResourceRequirements | None:
        """What the container was given; None for one that is not known. Shared: never change it."""
        return self._allocated.get_container_resources(pod_uid, container_name)

    def get_pod_level_resource_allocation(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        """What the pod as a whole was given; None if nothing, and for one that is not known. Shared."""
        return self._allocated.get_pod_level_resources(pod_uid)

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        """The pod with what it was given. Of a pod that cannot be read in full it is not known what it wants."""
        allocated = self._allocated.get_pod_resource_info(pod.metadata.uid)
        if allocated is None:
            return AllocatedPod(pod, differs=False)
        if isinstance(pod, v1.PartialPod):
            return AllocatedPod(_with_missing_containers(pod, allocated), differs=False)
        return update_pod_from_allocation(pod, allocated)

    def is_allocated(self, uid: types.UID) -> bool:
        """Whether the pod was given something, be it by an earlier kubelet."""
        return self._allocated.get_pod_resource_info(uid) is not None

    def set_allocated_resources(self, pod: v1.Pod) -> None:
        """Note that the pod was given what it wants. Raises OSError."""
        self._allocated.set_pod_resource_info(pod.metadata.uid, allocation_from_pod(pod))

    # ---- Admission ----

    def add_pod_admit_handlers(self, handlers: Iterable[lifecycle.PodAdmitHandler]) -> None:
        """Who may refuse a pod or a resize, in the order in which they are asked."""
        self._admit_handlers.extend(handlers)

    def add_pod(self, active_pods: list[v1.Pod], pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Whether the pod may run beside the active ones; if so, it has been given what it wants."""
        with self._allocation_lock:
            resizable = features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING)
            if resizable:
                # After a restart of the kubelet, what the pod was given counts, and not what it wants now.
                pod = self.update_pod_from_allocation(pod).pod
            result = self._can_admit_pod(self._get_allocated_pods(active_pods), pod, lifecycle.ADD_OPERATION)
            if result.admit and resizable:
                try:
                    self.set_allocated_resources(pod)
                except OSError as err:
                    # It is known as long as this process lives, and runs; refusing it would help nobody.
                    klog.error_s(err, "SetPodAllocation failed", pod=klog.kobj(pod))
            return result

    def remove_pod(self, uid: types.UID) -> None:
        """Forget what the pod was given."""
        self._allocated.remove_pod(uid)

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        """Forget all pods but these."""
        self._allocated.remove_orphaned_pods(remaining_pods)

    def _handle_pod_resources_resize(self, pod: v1.Pod) -> bool:
        """Give the pod what it wants if that can be; True if it has something new. Raises OSError."""
        uid, generation = pod.metadata.uid, pod.metadata.generation
        allocated = self.update_pod_from_allocation(pod)
        if not allocated.differs:
            self._status_manager.clear_pod_resize_pending_condition(uid)
            return False
        active = self._get_active_pods()
        self._preempted &= {one.metadata.uid for one in active}
        others = self._get_allocated_pods([one for one in active if one.metadata.uid not in self._preempted])
        result = self._can_admit_pod(others, pod, lifecycle.RESIZE_OPERATION)
        if result.admit:
            try:
                self.set_allocated_resources(pod)
            except OSError:
                # DIVERGES (fault of Go): a resize that could not be written down is taken back.
                # Go: pkg/kubelet/allocation/allocation_manager.go, (*manager).handlePodResourcesResize: it stays in
                # memory.
                # Why: containers would be resized while the pod's status does not say so, and the next kubelet would
                # know nothing of it.
                # Test: allocation_manager_test.py:test_what_could_not_be_written_is_not_given
                with contextlib.suppress(OSError):
                    self.set_allocated_resources(allocated.pod)
                raise
            self._status_manager.clear_pod_resize_pending_condition(uid)
            # Whatever went wrong with an earlier resize is over.
            self._status_manager.clear_pod_resize_in_progress_condition(uid)
            self._status_manager.set_pod_resize_in_progress_condition(uid, "", "", generation)
            message = events.pod_resize_started_msg(pod, generation)
            self._recorder.event(pod, v1.EVENT_TYPE_NORMAL, events.RESIZE_STARTED, message)
            return True
        if result.make_room is not None:
            self._rooms_to_make.append(result.make_room)
        if result.reason and self._status_manager.set_pod_resize_pending_condition(
            uid, result.reason, result.message, generation
        ):
            infeasible = result.reason == v1.POD_REASON_INFEASIBLE
            reason = events.RESIZE_INFEASIBLE if infeasible else events.RESIZE_DEFERRED
            message = events.pod_resize_pending_msg(pod, result.reason, result.message, generation)
            self._recorder.event(pod, v1.EVENT_TYPE_WARNING, reason, message)
        return False

    def _can_admit_pod(
        self, allocated_pods: list[v1.Pod], pod: v1.Pod, operation: lifecycle.Operation
    ) -> lifecycle.PodAdmitResult:
        """Ask every admit handler whether pod may run beside the others; the first refusal counts."""
        others = [other for other in allocated_pods if other.metadata.uid != pod.metadata.uid]
        attributes = lifecycle.PodAdmitAttributes(pod=pod, other_pods=others, operation=operation)
        for handler in self._admit_handlers:
            result = handler.admit(attributes)
            if not result.admit:
                klog.info_s(
                    "Pod admission denied",
                    podUID=pod.metadata.uid,
                    pod=klog.kobj(pod),
                    reason=result.reason,
                    message=result.message,
                    operation=str(operation),
                )
                return result
        return lifecycle.PodAdmitResult(admit=True)

    def _get_allocated_pods(self, active_pods: list[v1.Pod]) -> list[v1.Pod]:
        if not features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
            return active_pods
        return [self.update_pod_from_allocation(pod).pod for pod in active_pods]


def _new_state(checkpoint_directory: str) -> state.State:
    if not checkpoint_directory:
        return state.StateMemory()
    if not features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING):
        return state.NoopStateCheckpoint()
    return state.StateCheckpoint(checkpoint_directory, ALLOCATED_PODS_STATE_FILE)


def update_pod_from_allocation(pod: v1.Pod, allocated: state.PodResourceInfo) -> AllocatedPod:
    """As the method of the same name, for what is given here."""
    pod_level = features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING)
    update_pod = pod_level and not codec.semantic_equal(pod.spec.resources, allocated.pod_level_resources)
    changed = {
        container.name
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        if container.name in allocated.container_resources
        and not codec.semantic_equal(container.resources, allocated.container_resources[container.name])
    }
    if not update_pod and not changed:
        return AllocatedPod(pod, differs=False)
    pod = v1.deepcopy(pod)
    if update_pod:
        pod.spec.resources = v1.deepcopy(allocated.pod_level_resources)
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name in changed:
            container.resources = v1.deepcopy(allocated.container_resources[container.name])
    return AllocatedPod(pod, differs=True)


def _with_missing_containers(pod: v1.PartialPod, allocated: state.PodResourceInfo) -> v1.PartialPod:
    """The pod with containers that have what it was given, as far as it has them no more: it may still use that."""
    known = {container.name for container in (*pod.spec.containers, *pod.spec.init_containers)}
    known.update(s.name for s in pod.status.init_container_statuses if s.state.terminated is not None)
    missing = allocated.container_resources.keys() - known
    if not missing:
        return pod
    pod = v1.deepcopy(pod)
    for name in sorted(missing):
        pod.spec.containers.append(v1.Container(name=name, resources=v1.deepcopy(allocated.container_resources[name])))
    return pod


def allocation_from_pod(pod: v1.Pod) -> state.PodResourceInfo:
    """What the pod wants, to be kept as what it was given."""
    pod_level = None
    if features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
        pod_level = pod.spec.resources
    containers = podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    resources = {c.name: c.resources for c, kind in containers if is_resizable_container(c, kind)}
    return state.PodResourceInfo(resources, pod_level)


def is_resizable_container(container: v1.Container, container_type: podutil.ContainerType) -> bool:
    """Whether the container's resources may change while it runs."""
    match container_type:
        case podutil.ContainerType.INIT_CONTAINERS:
            gate = features.IN_PLACE_POD_VERTICAL_SCALING_INIT_CONTAINERS
            return features.feature_gate.enabled(gate) or podutil.is_restartable_init_container(container)
        case podutil.ContainerType.CONTAINERS:
            return True
        case _:
            return False
