"""The truth about each pod's status on this node, and its way to the API server.

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

# Seconds between two comparisons of all statuses with the API server's.
SYNC_PERIOD = 10.0

# How many pods' statuses are sent at the same time.
MAX_PARALLEL_SYNCS = 8

# Seconds that the API server may take over one pod's status: the pod is read, patched, and deleted if it has ended.
SYNC_TIMEOUT = 30.0

# The kubelet's conditions whose transition times are kept here.
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
    """A status and what is needed to send it. Never changed; a new status is a new version."""

    # Counts up for each pod, so that an old status is not sent after a new one.
    version: int
    pod_name: str
    pod_namespace: str
    # When the first status that has not been sent yet was found; None if all have been.
    at: datetime | None
    # Made at the end of the pod's sync_terminated_pod or later.
    pod_is_finished: bool
    status: v1.PodStatus


class PodManager(Protocol):
    """What is needed of the pod manager."""

    def get_pod_by_uid(self, uid: types.UID) -> v1.Pod | None: ...

    def get_mirror_pod_by_pod(self, pod: v1.Pod) -> v1.Pod | None: ...

    def translate_pod_uid(self, uid: types.UID) -> kubetypes.ResolvedPodUID:
        """The static pod's uid for a mirror pod's, any other uid as it is."""
        ...

    def get_uid_translations(
        self,
    ) -> tuple[
        dict[kubetypes.ResolvedPodUID, kubetypes.MirrorPodUID],
        dict[kubetypes.MirrorPodUID, kubetypes.ResolvedPodUID],
    ]:
        """From static to mirror pods (empty if there is none) and back."""
        ...


class PodStatusProvider(Protocol):
    """Knows how a pod really is, whatever its object says."""

    def get_pod_status(self, uid: types.UID) -> v1.PodStatus | None:
        """The status, None if there is none. Shared: copy it before changing it."""
        ...


class PodDeletionSafetyProvider(Protocol):
    """Knows whether a pod can be deleted without leaving something running."""

    def pod_could_have_running_containers(self, pod: v1.Pod) -> bool: ...


class PodStartupLatencyStateHelper(Protocol):
    """Measures how long pods take to start."""

    def record_status_updated(self, pod: v1.Pod) -> None: ...

    def delete_pod_startup_state(self, pod_uid: types.UID) -> None: ...


class PodUpdateNotifier(Protocol):
    """Wants to hear of each change of a status."""

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
    """What stands of a resize: that it waits to be granted, that what was granted is being put in force."""

    pod_resize_pending: v1.PodCondition | None = None
    pod_resize_in_progress: v1.PodCondition | None = None

    def list(self) -> list[v1.PodCondition]:
        """Those that there are."""
        return [c for c in (self.pod_resize_pending, self.pod_resize_in_progress) if c is not None]


_NO_RESIZE = PodResizeConditions()


class Manager:
    """Holds the statuses, and has a thread bring them to the API server if there is one. Thread-safe.

    Statuses handed in are copied, those handed out are shared.
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
        # Guards the four fields below. The last may be read without it, and so may single statuses.
        self._pod_statuses_lock = threading.Lock()
        self._pod_statuses: dict[types.UID, VersionedPodStatus] = {}
        # What the kubelet before this one said of static pods.
        self._inherited: dict[types.UID, v1.PodStatus] = {}
        self._pod_resize_conditions: dict[types.UID, PodResizeConditions] = {}
        self._notifiers: tuple[PodUpdateNotifier, ...] = ()
        # A message says that there is something to send.
        self._pod_status_channel: golang.Channel[None] = golang.Channel(1)
        # The versions that the API server has, by the uid it knows the pod by. Batches are the work of one thread;
        # the threads that send a batch side by side have a pod each.
        self.api_status_versions: dict[kubetypes.MirrorPodUID, int] = {}

    def start(self, ctx: golang.Context) -> None:
        """Starts the thread that sends statuses, until ctx is done; does nothing without an API server."""
        if self.kube_client is None:
            klog.info_s("Kubernetes client is nil, not starting status manager")
            return
        klog.info_s("Starting to sync pod status with apiserver")
        golang.go(wait.until, lambda: self._sync_loop(ctx), 0.0, ctx, name="status-manager")

    def updates(self) -> golang.Channel[None]:
        """Says that there is something to send; to be looked at by people, and read by nobody else. Go: none"""
        return self._pod_status_channel

    def _sync_loop(self, ctx: golang.Context) -> None:
        # Single statuses and all of them are sent from the same thread, so that they cannot overtake.
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
        """The resize conditions last set. Shared: never change them."""
        with self._pod_statuses_lock:
            return self._pod_resize_conditions.get(pod_uid, _NO_RESIZE).list()

    def set_pod_resize_pending_condition(
        self, pod_uid: types.UID, reason: str, message: str, observed_generation: int
    ) -> bool:
        """Notes that the resize waits; every reason but Infeasible shows as Deferred.

        Returns whether reason or generation are new.
        """
        if reason != v1.POD_REASON_INFEASIBLE:
            reason = v1.POD_REASON_DEFERRED
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            before = known.pod_resize_pending
            now = updated_pod_resize_condition(v1.POD_RESIZE_PENDING, before, reason, message, observed_generation)
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_pending=now)
            # DIVERGES (fault of Go): the metric of pending resizes changes also if a resize turns infeasible.
            # Go: pkg/kubelet/status/status_manager.go, (*manager).SetPodResizePendingCondition: it changes only for a
            # new condition.
            # Why: the resize would stay counted as deferred.
            # Test: resize_conditions_test.py:test_counts
            self._record_pending_resize_count_locked()
        return before is None or (before.reason, before.observed_generation) != (reason, observed_generation)

    def set_pod_resize_in_progress_condition(
        self, pod_uid: types.UID, reason: str, message: str, observed_generation: int
    ) -> int | None:
        """Notes that a granted resize is being put in force.

        A condition that stands already keeps its generation, and its reason and message unless there are new ones.
        Returns the generation of the condition, None if nothing but its times changed.
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
        """Notes that no resize waits any more."""
        with self._pod_statuses_lock:
            known = self._pod_resize_conditions.get(pod_uid, _NO_RESIZE)
            if known.pod_resize_pending is None:
                return
            self._pod_resize_conditions[pod_uid] = replace(known, pod_resize_pending=None)
            self._record_pending_resize_count_locked()

    def clear_pod_resize_in_progress_condition(self, pod_uid: types.UID, up_to: int | None = None) -> int | None:
        """Notes that nothing is left to put in force; the generation of what is done, None if there was nothing.

        With a generation in `up_to`, what was granted to a later one stays in progress.
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
        """Takes over the resize conditions that pods come with, after a restart."""
        with self._pod_statuses_lock:
            for pod in pods:
                for c in pod.status.conditions:
                    if c.type not in (v1.POD_RESIZE_PENDING, v1.POD_RESIZE_IN_PROGRESS):
                        continue
                    known = self._pod_resize_conditions.get(pod.metadata.uid, _NO_RESIZE)
                    # DIVERGES (fault of Go): a condition of a resize keeps its time when the kubelet is restarted.
                    # Go: pkg/kubelet/status/status_manager.go, (*manager).BackfillPodResizeConditions: it gets the time
                    # of the restart.
                    # Why: that time orders the resizes that wait, and a restart would change their order.
                    # Test: resize_conditions_test.py:test_transition_is_that_of_the_reason
                    now = updated_pod_resize_condition(c.type, c, c.reason, c.message, c.observed_generation)
                    if c.type == v1.POD_RESIZE_PENDING:
                        self._pod_resize_conditions[pod.metadata.uid] = replace(known, pod_resize_pending=now)
                    else:
                        self._pod_resize_conditions[pod.metadata.uid] = replace(known, pod_resize_in_progress=now)
            self._record_pending_resize_count_locked()
            self._record_in_progress_resize_count_locked()

    def is_pod_resize_deferred(self, pod_uid: types.UID) -> bool:
        """Whether the pod waits for a resize that may be granted later."""
        return self._pending_reason(pod_uid) == v1.POD_REASON_DEFERRED

    def is_pod_resize_infeasible(self, pod_uid: types.UID) -> bool:
        """Whether the pod asks for a resize that this node can never grant."""
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
        """The status of the pod or mirror pod, None if there is none. Shared: never change it."""
        resolved = types.UID(self.pod_manager.translate_pod_uid(uid))
        # Without the lock, for which the workers of all probes would wait in a row: values are replaced, never changed.
        cached = self._pod_statuses.get(resolved)
        return None if cached is None else cached.status

    def set_pod_status(self, pod: v1.Pod, status: v1.PodStatus) -> bool:
        """Takes the status over, has it sent if it differs; returns whether what is held has changed."""
        status = v1.deepcopy(status)
        status.observed_generation = podutil.calculate_pod_status_observed_generation(pod)
        with self._pod_statuses_lock:
            # For a pod that is being deleted an update is forced: it may be the one that lets it go.
            force_update = pod.metadata.deletion_timestamp is not None
            notification = self._update_status_internal_locked(pod, status, force_update, False)
        self._send_notification(notification)
        return notification is not None

    def set_container_readiness(self, pod_uid: types.UID, container_id: kubecontainer.ContainerID, ready: bool) -> None:
        """Takes a readiness probe's result over into the container's status and the pod's conditions."""
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
        """Takes a startup probe's result over into the container's status."""
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
        """The pod, its status and the container's, as they are held; None, and a log line, if unknown."""
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
        """Gives the pod, whose containers have all stopped, its last status.

        A container of which we do not know how it ended (it may have been cleared away meanwhile, or be from
        before a restart) counts as failed, lest the pod look successful. If the pod never got beyond its init
        containers the others stay waiting. The phase becomes a terminal one.
        """
        with self._pod_statuses_lock:
            cached = self._pod_statuses.get(pod.metadata.uid)
            status = v1.deepcopy(pod.status if cached is None else cached.status)
            if has_pod_initialized(pod):
                _default_to_terminated(status.container_statuses)
            _default_to_terminated(initialized_containers(status.init_container_statuses))
            # Go does not do this for static pods yet (kubernetes issue 116484).
            if not kubetypes.is_static_pod(pod):
                _make_phase_terminal(pod, status, is_cached=cached is not None)
            klog.v(5).info_s("TerminatePod calling updateStatusInternal", pod=klog.kobj(pod), podUID=pod.metadata.uid)
            notification = self._update_status_internal_locked(pod, status, True, True)
        self._send_notification(notification)

    def _update_status_internal_locked(
        self, pod: v1.Pod, status: v1.PodStatus, force_update: bool, pod_is_finished: bool
    ) -> _Notification | None:
        """Stores the status, which it may change, if it differs from what is held; None if it does not.

        A container that goes from ended to not ended against the restart policy is refused, and logged; not so in a pod
        that is known only in part.
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
        # Of a pod that cannot be read in full it is not known what may be restarted. Were its last status refused, the
        # API server would keep it for ever.
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
        """Go on with the times of what a static pod's mirror says, before the pod manager knows the mirror.

        DIVERGES (fault of Go): a static pod keeps its start time and transition times when the kubelet is restarted.
        Go: pkg/kubelet/status/status_manager.go, (*manager).updateStatusInternal: they are lost if the pod's first
        status is made before the API server has told of the mirror pod.
        Why: the pod would look as if it had been started anew.
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
        """Forgets the pods that are not among pod_uids.

        DIVERGES (fault of Go): what is known of a pod's start and of its resizes is forgotten, whatever pod it was.
        Go: pkg/kubelet/status/status_manager.go, (*manager).RemoveOrphanedStatuses: the start of a pod that was deleted
        before it had ended stays, and so does a resize that was noted after its pod had gone.
        Why: memory would be lost with each such pod, and the metrics of resizes count pods that are gone.
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

    # ---- To the API server; all of this on the sync thread ----

    def sync_batch(self, ctx: golang.Context, all: bool) -> int:
        """Sends the statuses that have changed, or with `all` those that the API server's differ from.

        Returns how many were tried.
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
            # Whatever is wrong with one pod, the statuses of the others are to be sent. The next batch looks again.
            with contain("Failed to find out whether a status is to be sent", ctx, podUID=uid):
                if self._should_sync(uid, status_uid, status, all):
                    updates.append(_PodSync(uid, status_uid, status))
        # The pods that have ended go first: others wait for what they held. Go's order is that of a map.
        # DIVERGES (safer): statuses of several pods are sent at the same time.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncBatch: they are sent one after the other.
        # Why: a request that the API server does not answer would hold up the statuses of all other pods.
        # Test: status_manager_test.py:test_a_request_that_is_never_answered_holds_up_no_status_for_ever
        updates.sort(key=lambda update: not update.status.pod_is_finished)
        workqueue.parallelize_until(
            ctx, MAX_PARALLEL_SYNCS, len(updates), lambda i: self._sync_one(ctx, updates[i]), name="status-sync"
        )
        return len(updates)

    def _sync_one(self, ctx: golang.Context, update: _PodSync) -> None:
        with self._pod_statuses_lock:
            # DIVERGES (safer): the status that is sent is the pod's latest.
            # Go: pkg/kubelet/status/status_manager.go, (*manager).syncBatch: it is the latest when the batch began.
            # Why: if earlier requests were slow, it is out of date, and has to be sent again.
            # Test: status_manager_test.py:test_status_that_changes_while_others_are_sent
            status = self._pod_statuses.get(update.pod_uid, update.status)
        klog.v(5).info_s(
            "Sync pod status",
            podUID=update.pod_uid,
            statusUID=update.status_uid,
            version=status.version,
        )
        # DIVERGES (safer): a status that cannot be sent within SYNC_TIMEOUT is left to the next batch.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncPod: has no time limit of its own.
        # Why: a read without an answer is tried again for a quarter of an hour, and the batch would wait for it.
        # Test: status_manager_test.py:test_pod_that_the_api_server_does_not_answer_about
        limited, cancel = golang.with_timeout(ctx, SYNC_TIMEOUT)
        try:
            self.sync_pod(limited, update.pod_uid, status)
        except Exception as err:
            # Whatever is wrong with one pod, the statuses of the others are to be sent.
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
            # As if nothing had been sent yet; the sync that follows sets it again.
            self.api_status_versions.pop(status_uid, None)
            return True
        return False

    def sync_pod(self, ctx: golang.Context, uid: types.UID, status: VersionedPodStatus) -> None:
        """Sends one status, and deletes the pod if it only waited for this. Faults are logged and retried."""
        assert self.kube_client is not None
        ref = {"podUID": uid, "pod": klog.kref(status.pod_namespace, status.pod_name)}
        try:
            pod = statusutil.get_pod(ctx, self.kube_client, status.pod_namespace, status.pod_name)
        except Exception as err:
            # Whatever it is, the status stays to be sent, and the next batch sends it.
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
        # DIVERGES (fault of Go): pod_status_sync_duration_seconds counts from the first status that was not sent yet.
        # Go: pkg/kubelet/status/status_manager.go, (*manager).syncPod: it counts from the pod's first status of all.
        # Why: the metric would show the age of pods.
        # Test: status_manager_test.py:test_the_time_to_send_is_counted_from_the_first_status_not_sent
        with self._pod_statuses_lock:
            if self._pod_statuses.get(uid) is status:
                self._pod_statuses[uid] = replace(status, at=None)

    def _patch(self, ctx: golang.Context, uid: types.UID, pod: v1.Pod, status: VersionedPodStatus) -> v1.Pod | None:
        """The pod with the new status; None if that failed."""
        assert self.kube_client is not None
        could_run = self._pod_deletion_safety.pod_could_have_running_containers(pod)
        merged = merge_pod_status(pod, pod.status, status.status, could_run)
        ref, meta = klog.kobj(pod), pod.metadata
        try:
            result = statusutil.patch_pod_status(
                ctx, self.kube_client, meta.namespace, meta.name, meta.uid, pod.status, merged
            )
        except Exception as err:
            # As above: the next batch tries again.
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
        """Removes the pod's object at once, provided that it is still the same pod's."""
        assert self.kube_client is not None
        options = metav1.DeleteOptions(grace_period_seconds=0, preconditions=metav1.Preconditions(uid=pod.metadata.uid))
        try:
            self.kube_client.core_v1.pods(pod.metadata.namespace).delete(ctx, pod.metadata.name, options)
        except Exception as err:
            # As above: the next batch tries again.
            klog.info_s("Failed to delete status for pod", pod=klog.kobj(pod), err=err)
            return
        klog.v(3).info_s("Pod fully terminated and removed from etcd", pod=klog.kobj(pod))
        self._delete_pod_status(uid)

    def needs_update(self, uid: types.UID, status: VersionedPodStatus) -> bool:
        """Whether the API server lacks this version, or the pod can be deleted there."""
        if self.api_status_versions.get(kubetypes.MirrorPodUID(uid), 0) < status.version:
            return True
        pod = self.pod_manager.get_pod_by_uid(uid)
        return pod is not None and self.can_be_deleted(pod, status.status, status.pod_is_finished)

    def can_be_deleted(self, pod: v1.Pod, status: v1.PodStatus, pod_is_finished: bool) -> bool:
        """Whether the pod is marked for deletion, has ended for the API server too, and is finished here."""
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
        """Whether the API server's status, as it came with the pod, differs from this. Ours is the truth."""
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
    """Whether two normalized statuses are the same in what the kubelet writes.

    Conditions of others and the claim statuses do not count, nor do the conditions' times.
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
    """The container's status, be it an init container's or not."""
    for container_status in [*status.container_statuses, *status.init_container_statuses]:
        if container_status.container_id == container_id:
            return container_status
    return None


def _with_container(status: v1.PodStatus, container: v1.ContainerStatus, **changes: object) -> v1.PodStatus:
    """A normalized status in which a container's has other values. The other containers' it shares with the original.

    A pod may have thousands of containers, of each of which three probes tell the sync loop.
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
    """Whether there is any sign, in the pod's own status, that it got beyond its init containers."""
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
    """All up to the last one that was ever started; at least the first."""
    for i in range(len(containers) - 1, -1, -1):
        if containers[i].state.waiting is None or containers[i].last_state.terminated is not None:
            return containers[: i + 1]
    return containers[:1]


def check_container_state_transition(
    old_statuses: v1.PodStatus, new_statuses: v1.PodStatus, pod_spec: v1.PodSpec
) -> ValueError | None:
    """Finds a container that has ended and now has not, though it may not be restarted: our own mistake.

    Returns the error, as it is for the log only.
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
    """The names of the containers that have not ended."""
    return {status.name for status in statuses if status.state.terminated is None}


def _has_ended_for_good(old: v1.ContainerStatus, pod_spec: v1.PodSpec, container: v1.Container | None) -> bool:
    """Whether the container had ended and may not be restarted."""
    if old.state.terminated is None:
        return False
    exit_code = old.state.terminated.exit_code
    if exit_code != 0 and pod_spec.restart_policy == v1.RESTART_POLICY_ON_FAILURE:
        return False
    if container is None or not features.feature_gate.enabled(features.CONTAINER_RESTART_RULES):
        return True
    return not podutil.container_should_restart(container, pod_spec, exit_code)


def _keep_times(status: v1.PodStatus, old_status: v1.PodStatus) -> None:
    """Sets when the pod started and when its conditions changed, in place: as before if they are as before."""
    for condition_type in _TIMED_CONDITIONS:
        update_last_transition_time(status, old_status, condition_type)
    status.start_time = old_status.start_time or status.start_time or metav1.now()


def update_last_transition_time(status: v1.PodStatus, old_status: v1.PodStatus, condition_type: str) -> None:
    """Sets the condition's transition time: the old one if its status is the old one, else now."""
    _, condition = podutil.get_pod_condition(status, condition_type)
    if condition is None:
        return
    _, old = podutil.get_pod_condition(old_status, condition_type)
    if old is not None and old.status == condition.status:
        condition.last_transition_time = old.last_transition_time
    else:
        condition.last_transition_time = metav1.now()


def normalize_status(pod: v1.Pod, status: v1.PodStatus) -> v1.PodStatus:
    """Brings the status, in place where it can, into the form in which the API server gives it back; returns it.

    Times are cut to seconds, container statuses sorted, the containers' termination messages share the room that a
    pod has for them, all reasons and messages share another, and what is no text is replaced.
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
    """The status to send: ours, with what others own in the old one.

    A terminal phase, and with it DisruptionTarget, is held back while containers may still be running:
    whoever sees it takes what the pod used to be free. There is no way back from one, and a pod that has one is
    not ready. Neither argument is changed.
    """
    old, new = old_pod_status, v1.deepcopy(new_pod_status)
    conditions = [c for c in old.conditions if not kubetypes.pod_condition_by_kubelet(c.type)]
    becomes_terminal = not podutil.is_pod_phase_terminal(old.phase) and podutil.is_pod_phase_terminal(new.phase)
    for condition in new.conditions:
        if kubetypes.pod_condition_by_kubelet(condition.type):
            conditions.append(condition)
        elif condition.type == v1.DISRUPTION_TARGET and becomes_terminal and not could_have_running_containers:
            # Its time is that of being sent, not of being found.
            update_last_transition_time(new, old, condition.type)
            conditions = statusutil.replace_or_append_pod_condition(conditions, condition)
    new.conditions = conditions
    for name in _CLAIM_FIELDS:
        setattr(new, name, getattr(old, name))
    # DIVERGES (fault of Go): a terminal phase that somebody else has set stays. Only a static pod that has ended may
    # run again, as itself.
    # Go: pkg/kubelet/status/status_manager.go, mergePodStatus: the kubelet's phase replaces it until the pod's worker
    # has seen it.
    # Why: a pod that controllers take for ended, and have replaced, would run again.
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
    """Whether a readiness gate's condition has changed, so that Ready is out of date."""
    if not pod.spec.readiness_gates:
        return False
    status = pod.status
    expected = generate_pod_ready_condition(
        pod, status, status.conditions, status.container_statuses or None, status.phase
    )
    _, current = podutil.get_pod_condition_from_list(status.conditions, v1.POD_READY)
    return current is not None and (current.status, current.message) != (expected.status, expected.message)


def _record_terminations(old_status: v1.PodStatus, status: v1.PodStatus) -> None:
    """Counts the containers that have ended since the old status."""
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
    """A line about every container, for finding out who changed what when."""
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
    """The condition as of now; its transition is that of the old one unless the reason is another."""
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
