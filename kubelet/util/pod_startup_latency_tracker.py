"""Measure the startup of pods, without the time for image pulls and init containers.

Go: pkg/kubelet/util/pod_startup_latency_tracker.go
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kubelet import metrics
from pkg import klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clockpkg
from pkg.apimachinery import types


class PodStartupLatencyTracker(Protocol):
    """Define how to record the times of a pod's startup.

    All methods are thread-safe; calls about unmeasured pods are ignored.
    """

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        """Record that the API server reported the pod at `when`, which starts or ends the measurement."""
        ...

    def record_image_started_pulling(self, pod_uid: types.UID) -> None: ...

    def record_image_finished_pulling(self, pod_uid: types.UID) -> None: ...

    def record_init_container_started(self, pod_uid: types.UID, started_at: datetime.datetime) -> None: ...

    def record_init_container_finished(self, pod_uid: types.UID, finished_at: datetime.datetime) -> None: ...

    def record_status_updated(self, pod: v1.Pod) -> None:
        """Record the status that the kubelet is about to report."""
        ...

    def delete_pod_startup_state(self, pod_uid: types.UID) -> None: ...


class _ImagePullSession(NamedTuple):
    start: datetime.datetime
    end: datetime.datetime


@dataclass(slots=True)
class _PerPodState:
    image_pull_sessions: list[_ImagePullSession] = field(default_factory=list)
    # Active pulls began at these times; several may run at once.
    image_pull_sessions_starts: list[datetime.datetime] = field(default_factory=list)
    # seconds
    total_init_container_runtime: float = 0.0
    current_init_container_start: datetime.datetime | None = None
    observed_running_time: datetime.datetime | None = None
    metric_recorded: bool = False


class BasicPodStartupLatencyTracker:
    """Keep the times in memory, and export the durations as metrics."""

    def __init__(self, clock: clockpkg.Clock | None = None) -> None:
        self._clock = clock or clockpkg.RealClock()
        # The lock guards the fields below.
        self._lock = threading.Lock()
        self._pods: dict[types.UID, _PerPodState] = {}
        # These pods could not be scheduled at first; they do not count, even if they are scheduled later.
        self._excluded_pods: set[types.UID] = set()
        self._first_network_pod_seen = False

    def observed_pod_on_watch(self, pod: v1.Pod, when: datetime.datetime) -> None:
        uid = pod.metadata.uid
        with self._lock:
            if podutil.is_pod_terminal(pod):
                self._pods.pop(uid, None)
                return
            state = self._pods.get(uid)
            if state is None:
                self._begin_locked(pod)
            elif state.metric_recorded:
                # The watch reports a running pod repeatedly.
                return
            elif _is_pod_unschedulable(pod):
                del self._pods[uid]
                self._excluded_pods.add(uid)
            elif state.observed_running_time is not None and _has_pod_started_slo(pod):
                self._record_locked(pod, state, when)

    def _begin_locked(self, pod: v1.Pod) -> None:
        """Start to measure a pod, unless it has a start time, and so existed before this kubelet."""
        uid = pod.metadata.uid
        if uid in self._excluded_pods or pod.status.start_time is not None:
            return
        if _is_pod_unschedulable(pod):
            self._excluded_pods.add(uid)
        else:
            self._pods[uid] = _PerPodState()

    def _record_locked(self, pod: v1.Pod, state: _PerPodState, when: datetime.datetime) -> None:
        created = pod.metadata.creation_timestamp or when
        total = (when - created).total_seconds()
        pulling = calculate_image_pulling_time(state.image_pull_sessions)
        slo = total - pulling - state.total_init_container_runtime
        stateful = _is_stateful_pod(pod)
        klog.info_s(
            "Observed pod startup duration",
            pod=klog.kobj(pod),
            podStartSLOduration=slo,
            podStartE2EDuration=total,
            totalImagesPullingTime=pulling,
            totalInitContainerRuntime=state.total_init_container_runtime,
            isStatefulPod=stateful,
            podCreationTimestamp=created,
            imagePullSessionsCount=len(state.image_pull_sessions),
            imagePullSessionsStartsCount=len(state.image_pull_sessions_starts),
            observedRunningTime=state.observed_running_time,
            watchObservedRunningTime=when,
        )
        metrics.POD_START_TOTAL_DURATION.observe(total)
        if not stateful:
            metrics.POD_START_SLI_DURATION.observe(slo)
            if not pod.spec.host_network and not self._first_network_pod_seen:
                metrics.FIRST_NETWORK_POD_START_SLI_DURATION.set(slo)
                self._first_network_pod_seen = True
        state.metric_recorded = True

    def record_image_started_pulling(self, pod_uid: types.UID) -> None:
        with self._lock:
            state = self._pods.get(pod_uid)
            if state is not None:
                state.image_pull_sessions_starts.append(self._clock.steady())

    def record_image_finished_pulling(self, pod_uid: types.UID) -> None:
        with self._lock:
            state = self._pods.get(pod_uid)
            if state is not None and state.image_pull_sessions_starts:
                # The caller does not say which pull has ended, so the oldest is assumed.
                start = state.image_pull_sessions_starts.pop(0)
                state.image_pull_sessions.append(_ImagePullSession(start, self._clock.steady()))

    def record_init_container_started(self, pod_uid: types.UID, started_at: datetime.datetime) -> None:
        with self._lock:
            state = self._pods.get(pod_uid)
            if state is not None:
                state.current_init_container_start = started_at

    def record_init_container_finished(self, pod_uid: types.UID, finished_at: datetime.datetime) -> None:
        with self._lock:
            state = self._pods.get(pod_uid)
            if state is None or state.current_init_container_start is None:
                return
            ran = (finished_at - state.current_init_container_start).total_seconds()
            state.total_init_container_runtime += max(ran, 0.0)
            state.current_init_container_start = None

    def record_status_updated(self, pod: v1.Pod) -> None:
        with self._lock:
            state = self._pods.get(pod.metadata.uid)
            if state is None or state.metric_recorded or state.observed_running_time is not None:
                return
            if _has_pod_started_slo(pod):
                klog.v(3).info_s(
                    "Mark when the pod was running for the first time",
                    pod=klog.kobj(pod),
                    rv=pod.metadata.resource_version,
                )
                state.observed_running_time = self._clock.now()

    def delete_pod_startup_state(self, pod_uid: types.UID) -> None:
        with self._lock:
            self._pods.pop(pod_uid, None)
            self._excluded_pods.discard(pod_uid)


def calculate_image_pulling_time(sessions: Sequence[_ImagePullSession]) -> float:
    """Return the seconds during which at least one pull was active. The sessions must be ordered by their start."""
    total = 0.0
    covered_until: datetime.datetime | None = None
    for start, end in sessions:
        begin = start if covered_until is None else max(start, covered_until)
        if end > begin:
            total += (end - begin).total_seconds()
        covered_until = end if covered_until is None else max(end, covered_until)
    return total


def _has_pod_started_slo(pod: v1.Pod) -> bool:
    """Report whether each container runs, as the definition of this service level requires."""
    return all(
        status.state.running is not None and status.state.running.started_at is not None
        for status in pod.status.container_statuses
    )


def _is_stateful_pod(pod: v1.Pod) -> bool:
    """Report whether the pod has a volume whose set-up time does not depend on the kubelet."""
    return any(
        volume.secret is None
        and volume.config_map is None
        and volume.downward_api is None
        and volume.empty_dir is None
        and volume.projected is None
        for volume in pod.spec.volumes
    )


def _is_pod_unschedulable(pod: v1.Pod) -> bool:
    return any(c.type == v1.POD_SCHEDULED and c.status == v1.CONDITION_FALSE for c in pod.status.conditions)
