"""Admit pods and resizes, and keep the allocated resources of each pod.

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

# This file, below the kubelet's root directory, holds the allocated resources of each pod.
ALLOCATED_PODS_STATE_FILE = "allocated_pods_state"

# The manager retries pending resizes after these times, in seconds: the first while some sources have not sent their
# pods, and the second afterwards.
INITIAL_RETRY_DELAY = 30.0
RETRY_DELAY = 180.0

# These are the triggers of retries of pending resizes, as labels of the metric.
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
    """Hold a pod with its allocated resources in place of the resources that it requests."""

    # This is the original pod if it requests its allocated resources, otherwise a copy.
    pod: v1.Pod
    # `differs` tells whether the pod requests other resources than those allocated.
    differs: bool


class _Retry(enum.Enum):
    """Name the results of retrying a pending resize."""

    GIVEN = enum.auto()
    WAITS = enum.auto()
    INFEASIBLE = enum.auto()


class Manager:
    """Allocate resources to pods. All methods are thread-safe, and one pod is admitted or resized at a time."""

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
        """Read the allocation that an earlier run of the kubelet has stored. Raise OSError."""
        self._allocated = _new_state(checkpoint_directory)
        self._admit_handlers: list[lifecycle.PodAdmitHandler] = []
        self._status_manager = status_manager
        self._trigger_pod_sync = trigger_pod_sync
        self._get_active_pods = get_active_pods
        self._get_pod_by_uid = get_pod_by_uid
        self._sources_ready = sources_ready
        self._recorder = recorder
        self._clock = clock or clocklib.RealClock()
        # `run` sets the ticker once.
        self._ticker: golang.Ticker | None = None
        # A thread holds this lock while it admits a pod or a resize, so that no resource is allocated twice. The lock
        # also guards the fields below.
        self._allocation_lock = threading.Lock()
        self._pods_with_pending_resizes: list[types.UID] = []
        # `_rooms_to_make` holds, for each critical pod that lacks resources for its resize, the function that preempts
        # other pods. `_preempted` holds the preempted pods.
        self._rooms_to_make: list[Callable[[], list[v1.Pod]]] = []
        self._preempted: set[types.UID] = set()
        # A message on this channel means that pods must be preempted.
        self._room_is_wanted: golang.Channel[None] = golang.Channel(1)

    def run(self, ctx: golang.Context) -> None:
        """Start the thread that retries pending resizes until ctx is done."""
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
            # The thread was waiting for preempted pods when the kubelet stopped.
            if ctx.err() is None:
                raise
        finally:
            ticker.stop()

    def _make_room(self) -> None:
        """Preempt the pods that are in the way of the first resize.

        The thread waits for the grace periods of these pods without holding the lock. Other resizes may be withdrawn or
        become possible in that time, so the next retry computes again which pods are in their way.
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
        """Retry all pending resizes; `trigger` names the event that makes a retry promising."""
        self._retry_pending_resizes(trigger)

    def _retry_pending_resizes(self, trigger: str) -> list[v1.Pod]:
        """Retry all pending resizes; return the pods whose resizes no longer wait."""
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
        """Allocate the requested resources if possible.

        Trigger a sync of the pod if its allocation or its resize conditions have changed.
        """
        uid = pod.metadata.uid
        conditions = self._status_manager.get_pod_resize_conditions(uid)
        was_deferred = self._status_manager.is_pod_resize_deferred(uid)
        allocated, outcome = False, _Retry.WAITS
        try:
            allocated = self._handle_pod_resources_resize(pod)
        except OSError as err:
            # The checkpoint could not be written, so the resize waits.
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
        """Record that the pod requests a resize; the next retry handles it."""
        with self._allocation_lock:
            if uid not in self._pods_with_pending_resizes:
                self._pods_with_pending_resizes.append(uid)
                self._sort_pending_resizes_locked()

    def _sort_pending_resizes_locked(self) -> None:
        """Sort resizes that need no more resources first, then by priority, by QoS class and by waiting time."""
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
        """Report whether a pod waits for a resize."""
        with self._allocation_lock:
            return bool(self._pods_with_pending_resizes)

    # ---- Allocated resources ----

    def get_container_resource_allocation(
        self, pod_uid: types.UID, container_name: str
    ) -> v1.ResourceRequirements | None:
        """Return the container's allocated resources, or None. They are shared: callers must not modify them."""
        return self._allocated.get_container_resources(pod_uid, container_name)

    def get_pod_level_resource_allocation(self, pod_uid: types.UID) -> v1.ResourceRequirements | None:
        """Return the allocated pod-level resources, or None. They are shared: callers must not modify them."""
        return self._allocated.get_pod_level_resources(pod_uid)

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        """Return the pod with its allocated resources.

        For a partially decoded pod, it is unknown which resources the pod requests.
        """
        allocated = self._allocated.get_pod_resource_info(pod.metadata.uid)
        if allocated is None:
            return AllocatedPod(pod, differs=False)
        if isinstance(pod, v1.PartialPod):
            return AllocatedPod(_with_missing_containers(pod, allocated), differs=False)
        return update_pod_from_allocation(pod, allocated)

    def is_allocated(self, uid: types.UID) -> bool:
        """Report whether resources are allocated to the pod, even if an earlier run of the kubelet allocated them."""
        return self._allocated.get_pod_resource_info(uid) is not None

    def set_allocated_resources(self, pod: v1.Pod) -> None:
        """Record the resources that the pod requests as its allocation. Raise OSError."""
        self._allocated.set_pod_resource_info(pod.metadata.uid, allocation_from_pod(pod))

    # ---- Admission ----

    def add_pod_admit_handlers(self, handlers: Iterable[lifecycle.PodAdmitHandler]) -> None:
        """Add handlers that may reject a pod or a resize, in the order in which the manager asks them."""
        self._admit_handlers.extend(handlers)

    def add_pod(self, active_pods: list[v1.Pod], pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Decide whether the pod may run beside the active ones; if so, allocate the resources that it requests."""
        with self._allocation_lock:
            resizable = features.feature_gate.enabled(features.IN_PLACE_POD_VERTICAL_SCALING)
            if resizable:
                # After a restart of the kubelet, the existing allocation counts, and not what the pod requests now.
                pod = self.update_pod_from_allocation(pod).pod
            result = self._can_admit_pod(self._get_allocated_pods(active_pods), pod, lifecycle.ADD_OPERATION)
            if result.admit and resizable:
                try:
                    self.set_allocated_resources(pod)
                except OSError as err:
                    # The allocation stays in memory while this process lives. A rejection of the pod would help nobody.
                    klog.error_s(err, "SetPodAllocation failed", pod=klog.kobj(pod))
            return result

    def remove_pod(self, uid: types.UID) -> None:
        """Forget the pod's allocated resources."""
        self._allocated.remove_pod(uid)

    def remove_orphaned_pods(self, remaining_pods: Collection[types.UID]) -> None:
        """Forget all pods except these."""
        self._allocated.remove_orphaned_pods(remaining_pods)

    def _handle_pod_resources_resize(self, pod: v1.Pod) -> bool:
        """Allocate the requested resources if possible; report whether the allocation has changed. Raise OSError."""
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
                # DIVERGES (fault of Go): a resize whose checkpoint could not be written is reverted.
                # Go: pkg/kubelet/allocation/allocation_manager.go, (*manager).handlePodResourcesResize: the resize
                # stays in memory.
                # Why: containers would be resized although the pod's status does not show this, and the next run of the
                # kubelet would not know of the resize.
                # Test: allocation_manager_test.py:test_what_could_not_be_written_is_not_given
                with contextlib.suppress(OSError):
                    self.set_allocated_resources(allocated.pod)
                raise
            self._status_manager.clear_pod_resize_pending_condition(uid)
            # The error of an earlier resize no longer applies.
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
        """Ask every admit handler whether the pod may run beside the others, and return the first rejection."""
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
    """Return the pod with the given allocation, like the method of the same name."""
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
    """Return the pod with additional containers for those allocations whose containers it no longer has.

    These containers may still use the resources.
    """
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
    """Return the resources that the pod requests, in the form of an allocation."""
    pod_level = None
    if features.feature_gate.enabled(features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING):
        pod_level = pod.spec.resources
    containers = podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS)
    resources = {c.name: c.resources for c, kind in containers if is_resizable_container(c, kind)}
    return state.PodResourceInfo(resources, pod_level)


def is_resizable_container(container: v1.Container, container_type: podutil.ContainerType) -> bool:
    """Report whether the container's resources may change while it runs."""
    match container_type:
        case podutil.ContainerType.INIT_CONTAINERS:
            gate = features.IN_PLACE_POD_VERTICAL_SCALING_INIT_CONTAINERS
            return features.feature_gate.enabled(gate) or podutil.is_restartable_init_container(container)
        case podutil.ContainerType.CONTAINERS:
            return True
        case _:
            return False
