"""Terminate pods that have run longer than their activeDeadlineSeconds.

Go: pkg/kubelet/active_deadline.go
"""

from __future__ import annotations

from kubelet import lifecycle, status
from pkg.api.core import v1
from pkg.apimachinery import clock
from pkg.client_go.tools import record

REASON = "DeadlineExceeded"
MESSAGE = "Pod was active on the node longer than the specified deadline"


class ActiveDeadlineHandler:
    """Check active deadlines, as a lifecycle.PodSyncLoopHandler and a lifecycle.PodSyncHandler."""

    def __init__(
        self,
        pod_status_provider: status.PodStatusProvider,
        recorder: record.EventRecorder,
        clock: clock.Clock,
    ) -> None:
        self._pod_status_provider = pod_status_provider
        self._recorder = recorder
        self._clock = clock

    def should_sync(self, pod: v1.Pod) -> bool:
        """Report whether the deadline has passed; then the pod is synced, and the sync terminates it."""
        return self._past_active_deadline(pod)

    def should_evict(self, pod: v1.Pod) -> lifecycle.ShouldEvictResponse:
        """Report whether the deadline has passed; if it has, record an event too."""
        if not self._past_active_deadline(pod):
            return lifecycle.ShouldEvictResponse(evict=False)
        self._recorder.event(pod, v1.EVENT_TYPE_NORMAL, REASON, MESSAGE)
        return lifecycle.ShouldEvictResponse(evict=True, reason=REASON, message=MESSAGE)

    def _past_active_deadline(self, pod: v1.Pod) -> bool:
        if pod.spec.active_deadline_seconds is None:
            return False
        # The kubelet's status of the pod is newer than the one that came with the pod.
        pod_status = self._pod_status_provider.get_pod_status(pod.metadata.uid)
        if pod_status is None:
            pod_status = pod.status
        if pod_status.start_time is None:
            return False
        # time of day: the API server stores the start time, and a restarted kubelet reads it from there.
        return self._clock.since(pod_status.start_time) >= pod.spec.active_deadline_seconds
