"""Hold the authoritative status of each pod on this node, and send it to the API server.

Go: pkg/kubelet/status/status_manager.go
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet import types as kubetypes
from kubelet import util as kubeutil
from kubelet.status import budget
from kubelet.status.generate import (
    generate_containers_ready_condition,
    generate_containers_ready_condition_for_terminal_phase,
    generate_pod_ready_condition,
    generate_pod_ready_condition_for_terminal_phase,
)
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock, types
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.util import workqueue
from pkg.util import pod as statusutil

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# `SYNC_PERIOD` is the time, in seconds, between two comparisons of all statuses with those of the API server.
SYNC_PERIOD = 10.0

# `MAX_PARALLEL_SYNCS` is the number of statuses that the manager sends at the same time.
MAX_PARALLEL_SYNCS = 8

# `SYNC_TIMEOUT` is the time, in seconds, that sending one pod's status may take: reading and patching the pod, and
# deleting it if it has terminated.
SYNC_TIMEOUT = 30.0

# `_TIMED_CONDITIONS` holds the conditions whose transition times this module sets.
_TIMED_CONDITIONS = (
    v1.CONTAINERS_READY,
    v1.POD_READY,
    v1.POD_INITIALIZED,
    v1.POD_READY_TO_START_CONTAINERS,
    v1.POD_SCHEDULED,
    v1.DISRUPTION_TARGET,
    v1.ALL_CONTAINERS_RESTARTING,
)


@dataclass(frozen=True, slots=True)
class VersionedPodStatus:
    """Hold a status and what is needed to send it. The object never changes; a new status gets a new version."""

    # The version increases for each pod, so that the manager never sends an old status after a newer one.
    version: int
    pod_name: str
    pod_namespace: str
    # `at` is the time of the first status that has not been sent yet; it is None if all have been sent.
    at: datetime | None
    # `pod_is_finished` is True if the status was set at the end of the pod's sync_terminated_pod or later.
    pod_is_finished: bool
    status: v1.PodStatus


class PodManager(Protocol):
    """Define what the status manager needs from the pod manager."""

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None: ...

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None: ...

    def translate_pod_uid(self, uid: types.UID) -> kubetypes.ResolvedPodUID:
        """Return the static pod's UID for the UID of a mirror pod, and any other UID unchanged."""
        ...

    def get_uid_translations(
        self,
    ) -> tuple[
        dict[kubetypes.ResolvedPodUID, kubetypes.MirrorPodUID],
        dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID],
    ]:
        """Return the map from static to mirror pods, with "" for a missing mirror pod, and the reverse map."""
        ...


class PodStatusProvider(Protocol):
    """Define a provider of the actual status of pods, which may differ from the status in the pod objects."""

    def get_pod_status(self, uid: types.UID) -> v1.PodStatus | None:
        """Return the status, or None if there is none. The status is shared: copy it before changing it."""
        ...


class PodDeletionSafetyProvider(Protocol):
    """Define a check that a pod can be deleted without leaving containers running."""

    def pod_could_have_running_containers(self, pod: v1.Pod) -> bool: ...


class PodStartupLatencyStateHelper(Protocol):
    """Define the measurement of how long pods take to start."""

    def record_status_updated(self, pod: v1.Pod) -> None: ...

    def delete_pod_startup_state(self, pod_uid: types.UID) -> None: ...


class PodUpdateNotifier(Protocol):
    """Define the receiver of notifications about changed statuses."""

    def on_pod_updated(self, pod: v1.Pod, status: v1.PodStatus, is_added: bool) -> None: ...

    def on_pod_removed(self, pod: v1.Pod) -> None: ...


@dataclass(frozen=True, slots=True)
class _Notification:
    pod: v1.Pod
    status: v1.PodStatus
    is_added: bool
    pod_is_finished: bool


class _PodSync(NamedTuple):
    pod_uid: types.UID
    status_uid: kubetypes.MirrorPodUID
    status: VersionedPodStatus


@dataclass(frozen=True, slots=True)
class PodResizeConditions:
    """Hold the conditions of a pod's resize: one while it is pending, one while the kubelet actuates it."""

    pod_resize_pending: v1.PodCondition | None = None
    pod_resize_in_progress: v1.PodCondition | None = None

    def list(self) -> list[v1.PodCondition]:
        """Return the conditions that are set."""
        return [c for c in (self.pod_resize_pending, self.pod_resize_in_progress) if c is not None]


_NO_RESIZE = PodResizeConditions()


class Manager:
    """Hold the statuses, and send them to the API server, if there is one. All methods are thread-safe.

    The manager copies the statuses that callers pass in, and shares those that it returns.
    """

    def __init__(
        self,
        kube_client: kubernetes.Interface | None,
        pod_manager: PodManager,
        pod_deletion_safety: PodDeletionSafetyProvider,
        pod_startup_latency_helper: PodStartupLatencyStateHelper,
    ) -> None:
        self.kube_client = kube_client
        self.pod_manager = pod_manager
        self._pod_deletion_safety = pod_deletion_safety
        self._pod_startup_latency_helper = pod_startup_latency_helper
        # This lock guards the four fields below. `_notifiers` and single entries of `_pod_statuses` may be read without
        # the lock.
        self._pod_statuses_lock = threading.Lock()
        self._pod_statuses: dict[types.UID, VersionedPodStatus] = {}
        # `_inherited` holds the statuses of static pods that the mirror pods had before this kubelet started.
        self._inherited: dict[types.UID, v1.PodStatus] = {}
        self._pod_resize_conditions: dict[types.UID, PodResizeConditions] = {}
        self._notifiers: tuple[PodUpdateNotifier, ...] = ()
        # A message on this channel means that there is a status to send.
        self._pod_status_channel: golang.Channel[None] = golang.Channel(1)
        # `api_status_versions` holds the versions that the API server has, by the UID under which it knows the pod. One
        # thread processes all batches; the threads that send one batch in parallel each use the entry of a different
        # pod.
        self.api_status_versions: dict[kubetypes.MirrorPodUID, int] = {}

    def start(self, ctx: golang.Context) -> None:
        """Start the thread that sends statuses until ctx is done. Without an API server, do nothing."""
        if self.kube_client is None:
            klog.info_s("Kubernetes client is nil, not starting status manager")
            return
        klog.info_s("Starting to sync pod status with apiserver")
        golang.go(wait.until, lambda: self._sync_loop(ctx), 0.0, ctx, name="status-manager")

    def updates(self) -> golang.Channel[None]:
        """Return the channel that signals statuses to send, for inspection only: callers must not receive from it.

        Go: none
        """
        return self._pod_status_channel

    def _sync_loop(self, ctx: golang.Context) -> None:
        # One thread sends both single statuses and all statuses, so that an old status cannot overtake a newer one.
        ticker = golang.Ticker(SYNC_PERIOD)
        while True:
            selected = golang.select(self._pod_status_channel, ticker.channel, ctx.done())
            if selected.took(self._pod_status_channel):
                klog.v(4).info_s("Syncing updated statuses")
                self.sync_batch(ctx, all=False)
            elif selected.took(ticker.channel):
                klog.v(4).info_s("Syncing all statuses")
                self.sync_batch(ctx, all=True)
            else:
                return

    def add_pod_update_notifier(self, notifier: PodUpdateNotifier) -> None:
        with self._pod_statuses_lock:
            self._notifiers = (*self._notifiers, notifier)

    # ---- Resizes ----

    def get_pod_resize_conditions(self, pod_uid: types.UID) -> list[v1.PodCondition]:
        """Return the last resize conditions. They are shared: callers must not change them."""
        with self._pod_statuses_lock:
            return self._pod_resize_conditions.get(pod_uid, _NO_RESIZE).list()

    def set_pod_resize_pending_condition(
        self, pod_uid: types.UID, reason: str, message: str, observed_generation: int
    ) -> bool:
        """Record that the resize is pending. Every reason except Infeasible is recorded as Deferred.

        Report whether the reason or the generation is new.
        """
        if reason != v1.POD_REASON_INFEASIBLE:
            reason = v1.POD_REASON_DEFERRED
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            before = known.pod_resize_pending
            now = updated_pod_resize_condition(v1.POD_RESIZE_PENDING, before, reason, message, observed_generation)
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_pending=now)
            # DIVERGES (fault of Go): the metric of pending resizes also changes when a resize becomes infeasible.
            # Go: pkg/kubelet/status/status_manager.go, (*manager).SetPodResizePendingCondition: the metric changes only
            # for a new condition.
            # Why: the metric would still count the resize as deferred.
            # Test: resize_conditions_test.py:test_counts
            self._record_pending_resize_count_locked()
        return before is None or (before.reason, before.observed_generation) != (reason, observed_generation)

    def set_pod_resize_in_progress_condition(
        self, pod_uid: types.UID, reason: str, message: str, observed_generation: int
    ) -> int | None:
        """Record that the kubelet actuates an allocated resize.

        An existing condition keeps its generation. It also keeps its reason and message unless the caller gives new
        ones. Return the generation of the condition, or None if only its times have changed.
        """
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            before = known.pod_resize_in_progress
            if before is not None:
                if not reason and not message:
                    reason, message = before.reason, before.message
                observed_generation = before.observed_generation
            now = updated_pod_resize_condition(v1.POD_RESIZE_IN_PROGRESS, before, reason, message, observed_generation)
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_in_progress=now)
            if before is None:
                self._record_in_progress_resize_count_locked()
        has_changed = before is None or (before.reason, before.message) != (reason, message)
        return observed_generation if has_changed else None

    def clear_pod_resize_pending_condition(self, pod_uid: types.UID) -> None:
        """Record that no resize is pending any longer."""
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            if known.pod_resize_pending is None:
                return
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_pending=None)
            self._record_pending_resize_count_locked()

    def clear_pod_resize_in_progress_condition(self, pod_uid: types.UID, up_to: int | None = None) -> int | None:
        """Record that the resize has been actuated; return its generation, or None if no resize was in progress.

        If `up_to` is a generation, a resize that was allocated for a later generation stays in progress.
        """
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            if known.pod_resize_in_progress is None:
                return None
            generation = known.pod_resize_in_progress.observed_generation
            if up_to is not None and generation > up_to:
                return None
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_in_progress=None)
            self._record_in_progress_resize_count_locked()
            return generation

    def backfill_pod_resize_conditions(self, pods: Sequence[v1.Pod]) -> None:
        """Restore the resize conditions from the statuses of the pods after a restart."""
        with self._pod_statuses_lock:
            for pod in pods:
                for c in pod.status.conditions:
                    if c.type not in (v1.POD_RESIZE_PENDING, v1.POD_RESIZE_IN_PROGRESS):
                        continue
                    known = self._pod_resize_conditions.get(pod.metadata.uid, _NO_RESIZE)
                    # DIVERGES (fault of Go): the condition of a resize keeps its time when the kubelet restarts.
                    # Go: pkg/kubelet/status/status_manager.go, (*manager).BackfillPodResizeConditions: the condition
                    # gets the time of the restart.
                    # Why: this time orders the pending resizes, and a restart would change their order.
                    # Test: resize_conditions_test.py:test_transition_is_that_of_the_reason
                    now = updated_pod_resize_condition(c.type, c, c.reason, c.message, c.observed_generation)
                    if c.type == v1.POD_RESIZE_PENDING:
                        self._pod_resize_conditions[pod.metadata.uid] = replace(known, pod_resize_pending=now)
                    else:
                        self._pod_resize_conditions[pod.metadata.uid] = replace(known, pod_resize_in_progress=now)
            self._record_pending_resize_count_locked()
            self._record_in_progress_resize_count_locked()

    def is_pod_resize_deferred(self, pod_uid: types.UID) -> bool:
        """Report whether the pod waits for a resize that the kubelet may allocate later."""
        return self._pending_reason(pod_uid) == v1.POD_REASON_DEFERRED

    def is_pod_resize_infeasible(self, pod_uid: types.UID) -> bool:
        """Report whether the pod requests a resize that this node can never allocate."""
        return self._pending_reason(pod_uid) == v1.POD_REASON_INFEASIBLE

    def _pending_reason(self, pod_uid: types.UID) -> str | None:
        with self._pod_statuses_lock:
            pending = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE).pod_resize_pending
        return None if pending is None else pending.reason

    def _forget_resize_locked(self, pod_uid: types.UID) -> None:
        if self._pod_resize_conditions.pop(pod_uid, None) is not None:
            self._record_in_progress_resize_count_locked()
            self._record_pending_resize_count_locked()

    def _record_pending_resize_count_locked(self) -> None:
        pending = [c.pod_resize_pending for c in self._pod_resize_conditions.values()]
        counts = Counter(c.reason.lower() for c in pending if c is not None)
        metrics.POD_PENDING_RESIZES.clear()
        for reason, count in counts.items():
            metrics.POD_PENDING_RESIZES.labels(reason).set(count)

    def _record_in_progress_resize_count_locked(self) -> None:
        conditions = self._pod_resize_conditions.values()
        metrics.POD_IN_PROGRESS_RESIZES.set(sum(c.pod_resize_in_progress is not None for c in conditions))

    # ---- Statuses ----

    def get_pod_status(self, uid: types.UID) -> v1.PodStatus | None:
        """Return the status of the pod or mirror pod, or None. The status is shared: callers must not change it."""
        resolved = types.UID(self.pod_manager.translate_pod_uid(uid))
        # This method does not take the lock because all probe workers would queue for it. That is safe because entries
        # are replaced and never changed.
        cached = self._pod_statuses.get(resolved)
        return None if cached is None else cached.status

    def set_pod_status(self, pod: v1.Pod, status: v1.PodStatus) -> bool:
        """Store a copy of the status, and send it if it differs; report whether the stored status has changed."""
        status = v1.deepcopy(status)
        status.observed_generation = podutil.calculate_pod_status_observed_generation(pod)
        with self._pod_statuses_lock:
            # The update is forced for a pod that is being deleted: even an unchanged status may allow the API server to
            # delete the pod.
            force_update = pod.metadata.deletion_timestamp is not None
            notification = self._update_status_internal_locked(pod, status, force_update, False)
        self._send_notification(notification)
        return notification is not None

    def set_container_readiness(self, pod_uid: types.UID, container_id: kubecontainer.ContainerID, ready: bool) -> None:
        """Apply the result of a readiness probe to the container's status and to the pod's conditions."""
        with self._pod_statuses_lock:
            found = self._find_container_locked(pod_uid, container_id, "readiness")
            if found is None:
                return
            pod, old_status, container_status = found
            if container_status.ready == ready:
                klog.v(4).info_s(
                    "Container readiness unchanged",
                    ready=ready,
                    pod=klog.kobj(pod),
                    containerID=str(container_id),
                )
                return
            status = _with_container(old_status, container_status, ready=ready)
            all_statuses = [*status.init_container_statuses, *status.container_statuses]
            for condition in (
                generate_pod_ready_condition(pod, old_status, status.conditions, all_statuses, status.phase),
                generate_containers_ready_condition(pod, old_status, all_statuses, status.phase),
            ):
                _set_condition(status, condition)
            notification = self._update_status_internal_locked(pod, status, False, False)
        self._send_notification(notification)

    def set_container_startup(self, pod_uid: types.UID, container_id: kubecontainer.ContainerID, started: bool) -> None:
        """Apply the result of a startup probe to the container's status."""
        with self._pod_statuses_lock:
            found = self._find_container_locked(pod_uid, container_id, "startup")
            if found is None:
                return
            pod, old_status, container_status = found
            if container_status.started == started:
                klog.v(4).info_s("Container startup unchanged", pod=klog.kobj(pod), containerID=str(container_id))
                return
            status = _with_container(old_status, container_status, started=started)
            notification = self._update_status_internal_locked(pod, status, False, False)
        self._send_notification(notification)

    def _find_container_locked(
        self, pod_uid: types.UID, container_id: kubecontainer.ContainerID, what: str
    ) -> tuple[v1.Pod, v1.PodStatus, v1.ContainerStatus] | None:
        """Return the pod, its stored status and that of the container; log and return None if one is unknown."""
        pod = self.pod_manager.get_pod_by_uid(pod_uid)
        if pod is None:
            klog.v(4).info_s(f"Pod has been deleted, no need to update {what}", podUID=pod_uid)
            return None
        cached = self._pod_statuses.get(pod.metadata.uid)
        if cached is None:
            klog.info_s(
                f"Container {what} changed before pod has synced",
                pod=klog.kobj(pod),
                containerID=str(container_id),
            )
            return None
        container_status = find_container_status(cached.status, str(container_id))
        if container_status is None:
            klog.info_s(
                f"Container {what} changed for unknown container",
                pod=klog.kobj(pod),
                containerID=str(container_id),
            )
            return None
        return pod, cached.status, container_status

    def terminate_pod(self, pod: v1.Pod) -> None:
        """Set the final status of a pod whose containers have all stopped.

        The kubelet may not know how a container ended: it may have been removed, or have ended before a restart. Such a
        container counts as failed, so that the pod does not look successful. If the pod never got beyond its init
        containers, its other containers stay waiting. The pod's phase becomes terminal.
        """
        with self._pod_statuses_lock:
            cached = self._pod_statuses.get(pod.metadata.uid)
            status = v1.deepcopy(pod.status if cached is None else cached.status)
            if has_pod_initialized(pod):
                _default_to_terminated(status.container_statuses)
            _default_to_terminated(initialized_containers(status.init_container_statuses))
            # As in Go, a static pod's phase does not become terminal here (kubernetes issue 116484).
            if not kubetypes.is_static_pod(pod):
                _make_phase_terminal(pod, status, is_cached=cached is not None)
            klog.v(5).info_s("TerminatePod calling updateStatusInternal", pod=klog.kobj(pod), podUID=pod.metadata.uid)
            notification = self._update_status_internal_locked(pod, status, True, True)
        self._send_notification(notification)

    def _update_status_internal_locked(
        self, pod: v1.Pod, status: v1.PodStatus, force_update: bool, pod_is_finished: bool
    ) -> _Notification | None:
        """Store the status if it differs from the stored one; return None if it does not.

        The method may modify the argument.

        Refuse and log a status in which a container leaves the terminated state against the restart policy, except for
        a partially decoded pod.
        """
        uid = pod.metadata.uid
        cached = self._pod_statuses.get(uid)
        old_status = self._old_status(pod, cached)
        was_finished = cached is not None and cached.pod_is_finished
        if was_finished and not pod_is_finished and not kubetypes.is_static_pod(pod):
            klog.info_s(
                "Got unexpected podIsFinished=false, while podIsFinished=true in status cache, programmer error",
                pod=klog.kobj(pod),
            )
            pod_is_finished = True
        # The restart policy of a partially decoded pod may be unknown. If the manager refused the pod's last status,
        # the API server would keep the pod forever.
        is_partial = isinstance(pod, v1.PartialPod)
        fault = None if is_partial else check_container_state_transition(old_status, status, pod.spec)
        if fault is not None:
            klog.error_s(fault, "Status update on pod aborted", pod=klog.kobj(pod))
            return None
        _keep_times(status, old_status)
        status.observed_generation = max(status.observed_generation, old_status.observed_generation)
        status = normalize_status(pod, status)
        version = 1 if cached is None else cached.version + 1
        _log_status(pod, status, version, pod_is_finished)
        _record_terminations(old_status, status)
        if cached is not None and not force_update and is_pod_status_by_kubelet_equal(cached.status, status):
            klog.v(3).info_s("Ignoring same status for pod", pod=klog.kobj(pod), status=status)
            return None
        self._pod_statuses[uid] = VersionedPodStatus(
            version=version,
            pod_name=pod.metadata.name,
            pod_namespace=pod.metadata.namespace,
            at=clock.RealClock().steady() if cached is None or cached.at is None else cached.at,
            pod_is_finished=pod_is_finished,
            status=status,
        )
        self._pod_status_channel.try_send(None)
        is_added = cached is None and pod.metadata.deletion_timestamp is None
        return _Notification(pod, status, is_added, pod_is_finished)

    def _old_status(self, pod: v1.Pod, cached: VersionedPodStatus | None) -> v1.PodStatus:
        if cached is not None:
            return cached.status
        mirror_pod = self.pod_manager.get_mirror_pod_by_pod(pod)
        return self._inherited.get(pod.metadata.uid, pod.status) if mirror_pod is None else mirror_pod.status

    def inherit(self, pod_uid: types.UID, status: v1.PodStatus) -> None:
        """Keep the times in a mirror pod's status for its static pod, before the pod manager knows the mirror pod.

        DIVERGES (fault of Go): a static pod keeps its start time and transition times when the kubelet restarts.
        Go: pkg/kubelet/status/status_manager.go, (*manager).updateStatusInternal: the Go kubelet loses these times if
        it generates the pod's first status before it receives the mirror pod from the API server.
        Why: the pod would look as if it had just started.
        Test: status_manager_test.py:test_static_pod_goes_on_with_the_times_of_its_mirror
        """
        if status.start_time is None:
            return
        with self._pod_statuses_lock:
            self._inherited[pod_uid] = status
            cached = self._pod_statuses.get(pod_uid)
            if cached is not None:
                inherited = codec.deepcopy(cached.status)
                _keep_times(inherited, status)
                self._pod_statuses[pod_uid] = replace(cached, status=inherited)

    def _send_notification(self, notification: _Notification | None) -> None:
        if notification is None:
            return
        notifiers = self._notifiers
        if not notifiers:
            return
        pod = v1.Pod(
            api_version=notification.pod.api_version,
            kind=notification.pod.kind,
            metadata=notification.pod.metadata,
            spec=notification.pod.spec,
            status=notification.status,
        )
        for notifier in notifiers:
            if notification.pod_is_finished:
                notifier.on_pod_removed(pod)
            else:
                notifier.on_pod_updated(pod, notification.status, notification.is_added)

    def _delete_pod_status(self, uid: types.UID) -> None:
        with self._pod_statuses_lock:
            self._pod_statuses.pop(uid, None)
            self._inherited.pop(uid, None)
            self._forget_resize_locked(uid)
        self._pod_startup_latency_helper.delete_pod_startup_state(uid)

    def remove_orphaned_statuses(self, pod_uids: Collection[types.UID]) -> None:
        """Forget the statuses and resize conditions of all pods except pod_uids.

        DIVERGES (fault of Go): the kubelet forgets the start and the resizes of every pod that no longer exists.
        Go: pkg/kubelet/status/status_manager.go, (*manager).RemoveOrphanedStatuses: the Go kubelet keeps the start of a
        pod that was deleted before it terminated, and a resize that was recorded after the pod's deletion.
        Why: each such pod would leak memory, and the metrics of resizes would count pods that no longer exist.
        Test: status_manager_test.py:test_remove_orphaned_statuses
        """
        with self._pod_statuses_lock:
            orphaned = (self._pod_statuses.keys() | self._pod_resize_conditions.keys()) - set(pod_uids)
            for uid in orphaned:
                klog.v(5).info_s("Removing pod from status map", podUID=uid)
                self._pod_statuses.pop(uid, None)
                self._forget_resize_locked(uid)
            self._inherited = {uid: status for uid, status in self._inherited.items() if uid in pod_uids}
        for uid in orphaned:
            self._pod_startup_latency_helper.delete_pod_startup_state(uid)

    # ---- Sending to the API server, all on the sync thread ----

    def sync_batch(self, ctx: golang.Context, all: bool) -> int:
        """Send the changed statuses, or with `all` every status that differs from the API server's.

        Return the number of statuses that the manager tried to send.
        """
        pod_to_mirror, mirror_to_pod = self.pod_manager.get_uid_translations()
        with self._pod_statuses_lock:
            statuses = dict(self._pod_statuses)
        if all:
            for status_uid in list(self.api_status_versions):
                if types.UID(status_uid) not in statuses and status_uid not in mirror_to_pod:
                    del self.api_status_versions[status_uid]
        updates = []
        for uid, status in statuses.items():
            mirror_uid = pod_to_mirror.get(kubetypes.ResolvedPodUID(uid))
            if mirror_uid == "":
                klog.v(5).info_s(
                    "Static pod does not have a corresponding mirror pod; skipping",
                    podUID=uid,
                    pod=klog.kref(status.pod_namespace, status.pod_name),
                )
                continue
            status_uid = kubetypes.MirrorPodUID(uid) if mirror_uid is None else mirror_uid
            # A fault of one pod must not keep the manager from sending the statuses of others. The next batch checks
            # the pod again.
            with contain("Failed to decide whether to send a status", ctx, podUID=uid):
                if self._should_sync(uid, status_uid, status, all):
                    updates.append(_PodSync(uid, status_uid, status))
        # The statuses of terminated pods come first because other pods wait for the resources of these pods. Go uses
        # the order of a map.
        # DIVERGES (safer): the manager sends the statuses of several pods at the same time.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncBatch: the Go kubelet sends them one after another.
        # Why: one request that the API server does not respond to would delay the statuses of all other pods.
        # Test: status_manager_test.py:test_a_request_that_is_never_answered_holds_up_no_status_for_ever
        updates.sort(key=lambda update: not update.status.pod_is_finished)
        workqueue.parallelize_until(
            ctx, MAX_PARALLEL_SYNCS, len(updates), lambda i: self._sync_one(ctx, updates[i]), name="status-sync"
        )
        return len(updates)

    def _sync_one(self, ctx: golang.Context, update: _PodSync) -> None:
        with self._pod_statuses_lock:
            # DIVERGES (safer): the manager sends the pod's latest status.
            # Go: pkg/kubelet/status/status_manager.go, (*manager).syncBatch: the Go kubelet sends the status that was
            # the latest when the batch began.
            # Why: if earlier requests were slow, that status is outdated, and the kubelet would have to send another.
            # Test: status_manager_test.py:test_status_that_changes_while_others_are_sent
            status = self._pod_statuses.get(update.pod_uid, update.status)
        klog.v(5).info_s(
            "Sync pod status",
            podUID=update.pod_uid,
            statusUID=update.status_uid,
            version=status.version,
        )
        # DIVERGES (safer): the manager leaves a status that it cannot send within SYNC_TIMEOUT to the next batch.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncPod: the Go kubelet has no time limit of its own.
        # Why: the client retries an unanswered read for a quarter of an hour, and the batch would wait for it.
        # Test: status_manager_test.py:test_pod_that_the_api_server_does_not_answer_about
        limited, cancel = golang.with_timeout(ctx, SYNC_TIMEOUT)
        try:
            self.sync_pod(limited, update.pod_uid, status)
        except Exception as err:
            # A fault of one pod must not keep the manager from sending the statuses of others.
            pod = klog.kref(status.pod_namespace, status.pod_name)
            klog.error_s(err, "Failed to sync status for pod", pod=pod, stacktrace=klog.stacktrace(err))
        finally:
            cancel()

    def _should_sync(
        self, uid: types.UID, status_uid: kubetypes.MirrorPodUID, status: VersionedPodStatus, all: bool
    ) -> bool:
        if not all:
            return self.api_status_versions.get(status_uid, 0) < status.version
        if self.needs_update(types.UID(status_uid), status):
            return True
        if self.needs_reconcile(uid, status.status):
            # Without an entry, the status counts as unsent, so that sync_pod sends it and sets the entry again.
            self.api_status_versions.pop(status_uid, None)
            return True
        return False

    def sync_pod(self, ctx: golang.Context, uid: types.UID, status: VersionedPodStatus) -> None:
        """Send one status, and delete the pod if it only waited for this status. Log faults; a later batch retries."""
        assert self.kube_client is not None
        ref = {"podUID": uid, "pod": klog.kref(status.pod_namespace, status.pod_name)}
        try:
            pod = statusutil.get_pod(ctx, self.kube_client, status.pod_namespace, status.pod_name)
        except Exception as err:
            # After any error the status stays unsent, and the next batch sends it.
            if apierrors.is_not_found(err):
                klog.v(3).info_s("Pod does not exist on the server", **ref)
            else:
                klog.error_s(err, "Failed to get status for pod", **ref)
            return
        translated_uid = self.pod_manager.translate_pod_uid(pod.metadata.uid)
        if translated_uid and translated_uid != kubetypes.ResolvedPodUID(uid):
            klog.v(2).info_s(
                "Pod was deleted and then recreated, skipping status update",
                pod=klog.kobj(pod),
                oldPodUID=uid,
                podUID=translated_uid,
            )
            self._delete_pod_status(uid)
            return
        patched = self._patch(ctx, uid, pod, status)
        if patched is None:
            return
        self._mark_sent(uid, status)
        self.api_status_versions[kubetypes.MirrorPodUID(pod.metadata.uid)] = status.version
        if self.can_be_deleted(patched, status.status, status.pod_is_finished):
            self._delete_pod(ctx, uid, patched)

    def _mark_sent(self, uid: types.UID, status: VersionedPodStatus) -> None:
        if status.at is None:
            klog.v(3).info_s(
                "Pod had no status time set",
                pod=klog.kref(status.pod_namespace, status.pod_name),
                podUID=uid,
                version=status.version,
            )
            return
        metrics.POD_STATUS_SYNC_DURATION.observe((clock.RealClock().steady() - status.at).total_seconds())
        # DIVERGES (fault of Go): pod_status_sync_duration_seconds counts from the first unsent status.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncPod: the metric counts from the first status that the
        # pod ever had.
        # Why: the metric would show the age of pods.
        # Test: status_manager_test.py:test_the_time_to_send_is_counted_from_the_first_status_not_sent
        with self._pod_statuses_lock:
            if self._pod_statuses.get(uid) is status:
                self._pod_statuses[uid] = replace(status, at=None)

    def _patch(self, ctx: golang.Context, uid: types.UID, pod: v1.Pod, status: VersionedPodStatus) -> v1.Pod | None:
        """Patch the pod with the new status; return the patched pod, or None if this failed."""
        assert self.kube_client is not None
        could_run = self._pod_deletion_safety.pod_could_have_running_containers(pod)
        merged = merge_pod_status(pod, pod.status, status.status, could_run)
        ref, meta = klog.kobj(pod), pod.metadata
        try:
            result = statusutil.patch_pod_status(
                ctx, self.kube_client, meta.namespace, meta.name, meta.uid, pod.status, merged
            )
        except Exception as err:
            # The next batch tries again.
            klog.error_s(err, "Failed to update status for pod", pod=ref)
            return None
        klog.v(3).info_s("Patch status for pod", pod=ref, podUID=uid, patch=result.patch.decode())
        if result.pod is None:
            klog.v(3).info_s("Status for pod is up-to-date", pod=ref, statusVersion=status.version)
            return pod
        klog.v(3).info_s("Status for pod updated successfully", pod=ref, statusVersion=status.version, status=merged)
        self._pod_startup_latency_helper.record_status_updated(result.pod)
        return result.pod

    def _delete_pod(self, ctx: golang.Context, uid: types.UID, pod: v1.Pod) -> None:
        """Delete the pod's object without a grace period, unless a new pod has taken its name."""
        assert self.kube_client is not None
        options = metav1.DeleteOptions(grace_period_seconds=0, preconditions=metav1.Preconditions(uid=pod.metadata.uid))
        try:
            self.kube_client.core_v1.pods(pod.metadata.namespace).delete(ctx, pod.metadata.name, options)
        except Exception as err:
            # The next batch tries again.
            klog.info_s("Failed to delete status for pod", pod=klog.kobj(pod), err=err)
            return
        klog.v(3).info_s("Pod fully terminated and removed from etcd", pod=klog.kobj(pod))
        self._delete_pod_status(uid)

    def needs_update(self, uid: types.UID, status: VersionedPodStatus) -> bool:
        """Report whether the API server lacks this version, or the pod can be deleted there."""
        if self.api_status_versions.get(kubetypes.MirrorPodUID(uid), 0) < status.version:
            return True
        pod = self.pod_manager.get_pod_by_uid(uid)
        return pod is not None and self.can_be_deleted(pod, status.status, status.pod_is_finished)

    def can_be_deleted(self, pod: v1.Pod, status: v1.PodStatus, pod_is_finished: bool) -> bool:
        """Report whether a pod marked for deletion is terminal on the API server too, and finished on this node."""
        if pod.metadata.deletion_timestamp is None or kubetypes.is_mirror_pod(pod):
            return False
        ref = {
            "phase": pod.status.phase,
            "localPhase": status.phase,
            "pod": klog.kobj(pod),
            "podUID": pod.metadata.uid,
        }
        if not podutil.is_pod_phase_terminal(pod.status.phase):
            klog.v(3).info_s("Delaying pod deletion as the phase is non-terminal", **ref)
            return False
        if pod_is_finished:
            klog.v(3).info_s("The pod termination is finished as SyncTerminatedPod completes its execution", **ref)
        return pod_is_finished

    def needs_reconcile(self, uid: types.UID, status: v1.PodStatus) -> bool:
        """Report whether the API server's status, which came with the pod, differs from this one.

        The kubelet is the authority on the status, so it overwrites a status that differs.
        """
        pod = self.pod_manager.get_pod_by_uid(uid)
        if pod is None:
            klog.v(4).info_s("Pod has been deleted, no need to reconcile", podUID=uid)
            return False
        if kubetypes.is_static_pod(pod):
            mirror_pod = self.pod_manager.get_mirror_pod_by_pod(pod)
            if mirror_pod is None:
                klog.v(4).info_s("Static pod has no corresponding mirror pod, no need to reconcile", pod=klog.kobj(pod))
                return False
            pod = mirror_pod
        pod_status = normalize_status(pod, v1.deepcopy(pod.status))
        if is_pod_status_by_kubelet_equal(pod_status, status):
            return False
        klog.v(3).info_s(
            "Pod status is inconsistent with cached status for pod, a reconciliation should be triggered",
            pod=klog.kobj(pod),
        )
        return True


def is_pod_status_by_kubelet_equal(old_status: v1.PodStatus, status: v1.PodStatus) -> bool:
    """Report whether two normalized statuses are equal in the fields that the kubelet writes.

    The function ignores conditions of other writers, the claim statuses, and the times of conditions.
    """

    def ours(conditions: Iterable[v1.PodCondition]) -> dict[str, tuple[str, str, str]]:
        return {
            c.type: (c.status, c.message, c.reason)
            for c in conditions
            if kubetypes.pod_condition_by_kubelet(c.type) or kubetypes.pod_condition_shared_by_kubelet(c.type)
        }

    if ours(old_status.conditions) != ours(status.conditions):
        return False
    others = {name: getattr(status, name) for name in ("conditions", *_CLAIM_FIELDS)}
    return codec.semantic_equal(msgspec.structs.replace(old_status, **others), status)


_CLAIM_FIELDS = (
    "resource_claim_statuses",
    "extended_resource_claim_status",
    "node_allocatable_resource_claim_statuses",
)


def find_container_status(status: v1.PodStatus, container_id: str) -> v1.ContainerStatus | None:
    """Return the status of a container or init container, or None if the ID is unknown."""
    for container_status in [*status.container_statuses, *status.init_container_statuses]:
        if container_status.container_id == container_id:
            return container_status
    return None


def _with_container(status: v1.PodStatus, container: v1.ContainerStatus, **changes: object) -> v1.PodStatus:
    """Return a copy of a normalized status in which one container has other values.

    The copy shares the statuses of all other containers with the original. A pod may have thousands of containers, and
    the sync loop receives the results of three probes for each.
    """
    changed = msgspec.structs.replace(container, **changes)

    def replaced(statuses: Iterable[v1.ContainerStatus]) -> list[v1.ContainerStatus]:
        return [changed if each is container else each for each in statuses]

    return msgspec.structs.replace(
        status,
        conditions=[v1.deepcopy(condition) for condition in status.conditions],
        container_statuses=replaced(status.container_statuses),
        init_container_statuses=replaced(status.init_container_statuses),
    )


def _set_condition(status: v1.PodStatus, condition: v1.PodCondition) -> None:
    if podutil.get_pod_condition(status, condition.type)[1] is None:
        klog.info_s("PodStatus missing condition type", conditionType=condition.type, status=status)
    status.conditions = statusutil.replace_or_append_pod_condition(status.conditions, condition)


def _default_to_terminated(statuses: Iterable[v1.ContainerStatus]) -> None:
    for status in statuses:
        if status.state.terminated is None:
            status.state = v1.ContainerState(
                terminated=v1.ContainerStateTerminated(
                    reason=kubecontainer.CONTAINER_REASON_STATUS_UNKNOWN,
                    message="The container could not be located when the pod was terminated",
                    exit_code=137,
                )
            )


def _make_phase_terminal(pod: v1.Pod, status: v1.PodStatus, is_cached: bool) -> None:
    if podutil.is_pod_phase_terminal(status.phase):
        return
    ref = {"pod": klog.kobj(pod), "podUID": pod.metadata.uid}
    if status.phase not in (v1.POD_PENDING, v1.POD_RUNNING):
        klog.error_s(ValueError(f"unknown phase: {status.phase}"), "Unknown phase, programmer error", **ref)
    else:
        if status.phase == v1.POD_RUNNING and is_cached:
            klog.info_s("Terminal running pod should have already been marked as failed, programmer error", **ref)
        klog.v(3).info_s("Marking terminal pod as failed", oldPhase=status.phase, **ref)
    status.phase = v1.POD_FAILED


def has_pod_initialized(pod: v1.Pod) -> bool:
    """Report whether the pod's own status shows that the pod got beyond its init containers."""
    if not pod.spec.init_containers:
        return True
    for status in pod.status.container_statuses:
        if status.last_state.terminated is not None or status.state.waiting is None:
            return True
    statuses = pod.status.init_container_statuses
    if not statuses:
        return False
    container = kubeutil.get_container_by_index(pod.spec.init_containers, statuses, len(statuses) - 1)
    if container is None:
        klog.v(4).info_s("Mismatch between pod spec and status, likely programmer error", pod=klog.kobj(pod))
        return False
    last = statuses[-1]
    if podutil.is_restartable_init_container(container):
        return last.state.running is not None and bool(last.started)
    return any(
        state.terminated is not None and state.terminated.exit_code == 0 for state in (last.last_state, last.state)
    )


def initialized_containers(containers: Sequence[v1.ContainerStatus]) -> Sequence[v1.ContainerStatus]:
    """Return the containers up to the last one that was ever started, and always at least the first."""
    for i in range(len(containers) - 1, -1, -1):
        if containers[i].state.waiting is None or containers[i].last_state.terminated is not None:
            return containers[: i + 1]
    return containers[:1]


def check_container_state_transition(
    old_statuses: v1.PodStatus, new_statuses: v1.PodStatus, pod_spec: v1.PodSpec
) -> ValueError | None:
    """Check that no container has left the terminated state although it must not restart.

    Such a transition is a bug of the kubelet itself. Return the error instead of raising it because the caller only
    logs it.
    """
    if pod_spec.restart_policy == v1.RESTART_POLICY_ALWAYS:
        return None
    restarts_in_place = features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS)
    if restarts_in_place and podutil.all_containers_could_restart(pod_spec):
        return None
    containers = {container.name: container for container in pod_spec.containers}
    running = _not_terminated(new_statuses.container_statuses)
    for old in old_statuses.container_statuses:
        if old.name in running and _has_ended_for_good(old, pod_spec, containers.get(old.name)):
            return ValueError(f"terminated container {old.name} attempted illegal transition to non-terminated state")
    running = _not_terminated(new_statuses.init_container_statuses)
    for i, old in enumerate(old_statuses.init_container_statuses):
        container = kubeutil.get_container_by_index(pod_spec.init_containers, old_statuses.init_container_statuses, i)
        if container is None:
            return ValueError(f"found mismatch between pod spec and status, container: {old.name}")
        if podutil.is_restartable_init_container(container):
            continue
        if old.name in running and _has_ended_for_good(old, pod_spec, container):
            return ValueError(
                f"terminated init container {old.name} attempted illegal transition to non-terminated state"
            )
    return None


def _not_terminated(statuses: Iterable[v1.ContainerStatus]) -> set[str]:
    """Return the names of the containers that have not terminated."""
    return {status.name for status in statuses if status.state.terminated is None}


def _has_ended_for_good(old: v1.ContainerStatus, pod_spec: v1.PodSpec, container: v1.Container | None) -> bool:
    """Report whether the container had terminated and must not restart."""
    if old.state.terminated is None:
        return False
    exit_code = old.state.terminated.exit_code
    if exit_code != 0 and pod_spec.restart_policy == v1.RESTART_POLICY_ON_FAILURE:
        return False
    if container is None or not features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
        return True
    return not podutil.container_should_restart(container, pod_spec, exit_code)


def _keep_times(status: v1.PodStatus, old_status: v1.PodStatus) -> None:
    """Set the pod's start time and the conditions' transition times; keep the old times where nothing has changed."""
    for condition_type in _TIMED_CONDITIONS:
        update_last_transition_time(status, old_status, condition_type)
    status.start_time = old_status.start_time or status.start_time or metav1.now()


def update_last_transition_time(status: v1.PodStatus, old_status: v1.PodStatus, condition_type: str) -> None:
    """Set the condition's transition time: the old time if its status is unchanged, otherwise the current time."""
    _, condition = podutil.get_pod_condition(status, condition_type)
    if condition is None:
        return
    _, old = podutil.get_pod_condition(old_status, condition_type)
    if old is not None and old.status == condition.status:
        condition.last_transition_time = old.last_transition_time
    else:
        condition.last_transition_time = metav1.now()


def normalize_status(pod: v1.Pod, status: v1.PodStatus) -> v1.PodStatus:
    """Convert the status to the form in which the API server would return it, partly in place, and return it.

    The function cuts times to seconds, sorts the container statuses, and replaces what is not valid text. The
    containers' termination messages share one limit on their length, and all reasons and messages share another.
    """
    status = codec.as_sent(status)
    spec = pod.spec
    containers = len(spec.containers) + len(spec.init_containers) + len(spec.ephemeral_containers)
    bytes_per_status = kubecontainer.MAX_POD_TERMINATION_MESSAGE_LOG_LENGTH // max(containers, 1)
    status.start_time = _cut_to_second(status.start_time)
    for condition in status.conditions:
        condition.last_probe_time = _cut_to_second(condition.last_probe_time)
        condition.last_transition_time = _cut_to_second(condition.last_transition_time)
    for container_status in [
        *status.container_statuses,
        *status.init_container_statuses,
        *status.ephemeral_container_statuses,
    ]:
        _normalize_container_state(container_status.state, bytes_per_status)
        _normalize_container_state(container_status.last_state, bytes_per_status)
    budget.cut_texts(status)
    status.container_statuses = kubetypes.sorted_container_statuses(status.container_statuses)
    kubetypes.sort_init_container_statuses(pod, status.init_container_statuses)
    status.ephemeral_container_statuses = kubetypes.sorted_container_statuses(status.ephemeral_container_statuses)
    return status


def _normalize_container_state(state: v1.ContainerState, max_bytes: int) -> None:
    if state.running is not None:
        state.running.started_at = _cut_to_second(state.running.started_at)
    if (terminated := state.terminated) is not None:
        terminated.started_at = _cut_to_second(terminated.started_at)
        terminated.finished_at = _cut_to_second(terminated.finished_at)
        terminated.message = budget.cut_text(terminated.message, max_bytes)


def _cut_to_second(t: datetime | None) -> datetime | None:
    return None if t is None else t.replace(microsecond=0)


def merge_pod_status(
    pod: v1.Pod,
    old_pod_status: v1.PodStatus,
    new_pod_status: v1.PodStatus,
    could_have_running_containers: bool,
) -> v1.PodStatus:
    """Return the status to send: the new status, with the fields that other writers own taken from the old one.

    While containers may still be running, the result has neither a terminal phase nor its DisruptionTarget condition.
    Other components take a terminal phase to mean that the pod has released its resources. A pod never leaves a
    terminal phase, and a pod in a terminal phase is not ready (kubernetes issue 108594). The function changes neither
    of the statuses.
    """
    old, new = old_pod_status, v1.deepcopy(new_pod_status)
    conditions = [c for c in old.conditions if not kubetypes.pod_condition_by_kubelet(c.type)]
    becomes_terminal = not podutil.is_pod_phase_terminal(old.phase) and podutil.is_pod_phase_terminal(new.phase)
    for condition in new.conditions:
        if kubetypes.pod_condition_by_kubelet(condition.type):
            conditions.append(condition)
        elif condition.type == v1.DISRUPTION_TARGET and becomes_terminal and not could_have_running_containers:
            # The transition time is the time of sending because the manager may have held the condition back for long.
            update_last_transition_time(new, old, condition.type)
            conditions = statusutil.replace_or_append_pod_condition(conditions, condition)
    new.conditions = conditions
    for name in _CLAIM_FIELDS:
        setattr(new, name, getattr(old, name))
    # DIVERGES (fault of Go): a terminal phase that another client has set stays. Only a terminated static pod may run
    # again under the same identity.
    # Go: pkg/kubelet/status/status_manager.go, mergePodStatus: the kubelet's phase replaces it until the pod worker has
    # seen it.
    # Why: a pod that controllers consider terminated, and have replaced, would run again.
    # Test: status_manager_test.py:test_merge_pod_status,
    # status_manager_test.py:test_merge_pod_status_lets_static_pods_run_again
    has_ended = podutil.is_pod_phase_terminal(old.phase) and not kubetypes.is_mirror_pod(pod)
    if (becomes_terminal and could_have_running_containers) or (has_ended and new.phase != old.phase):
        new.phase, new.reason, new.message = old.phase, old.reason, old.message
    if podutil.is_pod_phase_terminal(new.phase) and (
        podutil.is_pod_ready_condition_true(new) or podutil.is_containers_ready_condition_true(new)
    ):
        for unready in (
            generate_containers_ready_condition_for_terminal_phase(pod, old, new.phase),
            generate_pod_ready_condition_for_terminal_phase(pod, old, new.phase),
        ):
            podutil.update_pod_condition(new, unready)
    return new


def need_to_reconcile_pod_readiness(pod: v1.Pod) -> bool:
    """Report whether the pod's Ready condition is outdated because the condition of a readiness gate has changed."""
    if not pod.spec.readiness_gates:
        return False
    status = pod.status
    expected = generate_pod_ready_condition(
        pod, status, status.conditions, status.container_statuses or None, status.phase
    )
    _, current = podutil.get_pod_condition_from_list(status.conditions, v1.POD_READY)
    return current is not None and (current.status, current.message) != (expected.status, expected.message)


def _record_terminations(old_status: v1.PodStatus, status: v1.PodStatus) -> None:
    """Count the containers that have terminated since the old status, each of them once."""
    for container_type, old, new in (
        (metrics.INIT_CONTAINER, old_status.init_container_statuses, status.init_container_statuses),
        (metrics.CONTAINER, old_status.container_statuses, status.container_statuses),
        (
            metrics.EPHEMERAL_CONTAINER,
            old_status.ephemeral_container_statuses,
            status.ephemeral_container_statuses,
        ),
    ):
        ended = {s.name for s in old if s.state.terminated is not None}
        for container_status in new:
            terminated = container_status.state.terminated
            if terminated is not None and container_status.name not in ended:
                metrics.TERMINATED_CONTAINERS_TOTAL.labels(
                    container_type, str(terminated.exit_code), terminated.reason
                ).inc()


def _log_status(pod: v1.Pod, status: v1.PodStatus, version: int, pod_is_finished: bool) -> None:
    """Log the states of all containers, for debugging unexpected changes."""
    if not klog.v(5).enabled:
        return
    containers = sorted(
        f"({s.name} state={_state_text(s.state, 'unknown')} previous={_state_text(s.last_state, '<none>')})"
        for s in [*status.init_container_statuses, *status.container_statuses]
    )
    klog.v(5).info_s(
        "updateStatusInternal",
        version=version,
        podIsFinished=pod_is_finished,
        pod=klog.kobj(pod),
        podUID=pod.metadata.uid,
        containers=" ".join(containers),
    )


def _state_text(state: v1.ContainerState, default: str) -> str:
    if state.running is not None:
        return "running"
    if state.waiting is not None:
        return "waiting"
    if state.terminated is not None:
        return f"terminated={state.terminated.exit_code}"
    return default


def updated_pod_resize_condition(
    condition_type: str,
    old_condition: v1.PodCondition | None,
    reason: str,
    message: str,
    observed_generation: int,
) -> v1.PodCondition:
    """Return the condition as of now; keep its transition time unless the reason has changed."""
    now = metav1.now()
    same = old_condition is not None and old_condition.reason == reason
    return v1.PodCondition(
        type=condition_type,
        status=v1.CONDITION_TRUE,
        last_probe_time=now,
        last_transition_time=old_condition.last_transition_time if same and old_condition is not None else now,
        observed_generation=observed_generation,
        reason=reason,
        message=message,
    )
