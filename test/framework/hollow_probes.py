"""Run the probes of a hollow node, whose readiness a test can set."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet import container as kubecontainer
from kubelet import kubelet as kubelet_module
from kubelet.prober import prober, prober_manager, results
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types

if TYPE_CHECKING:
    from kubelet import kubelet_build
    from pkg.apimachinery import clock as clocklib
    from pkg.client_go.tools import record

IsReady = Callable[[str, str], bool | None]


class Readiness:
    """Hold the readiness that a test has set for containers, and pass it on to the kubelet.

    All methods are thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # The lock guards _said.
        self._said: dict[tuple[str, str], bool] = {}  # The key is the pod's UID and the container's name.
        self._kubelet: kubelet_module.Kubelet | None = None

    def get(self, pod_uid: str, container: str) -> bool | None:
        with self._lock:
            return self._said.get((pod_uid, container))

    def set(self, pod_uid: str, container: str, ready: bool | None) -> None:
        with self._lock:
            if ready is None:
                self._said.pop((pod_uid, container), None)
            else:
                self._said[pod_uid, container] = ready
        if self._kubelet is not None:
            self._tell(self._kubelet, pod_uid, container, ready)

    def follow_by(self, kubelet: kubelet_module.Kubelet) -> None:
        """Pass on later settings to this kubelet, which must have a SteeredManager."""
        self._kubelet = kubelet

    @staticmethod
    def _tell(kubelet: kubelet_module.Kubelet, pod_uid: str, container: str, ready: bool | None) -> None:
        """Report the readiness as a probe does, so that the kubelet syncs the pod.

        A container without a probe is ready.
        """
        uid = types.UID(pod_uid)
        pod = kubelet.pod_manager.get_pod_by_uid(uid)
        status = kubelet.status_manager.get_pod_status(uid)
        if pod is None or status is None:
            return
        result = results.FAILURE if ready is False else results.SUCCESS
        for each in (*status.container_statuses, *status.init_container_statuses):
            if each.name == container and each.container_id:
                container_id = kubecontainer.parse_container_id(each.container_id)
                kubelet.readiness_manager.set(container_id, result, pod)


class SteeredManager(prober_manager.Manager):
    """Probe as the kubelet does, except for containers whose readiness a test has set."""

    def __init__(
        self,
        pods: kubelet_build.PodState,
        runner: kubecontainer.CommandRunner,
        recorder: record.EventRecorder,
        clock: clocklib.Clock,
        is_ready: IsReady,
    ) -> None:
        super().__init__(
            pods.status_manager,
            pods.liveness_manager,
            pods.readiness_manager,
            pods.startup_manager,
            runner,
            recorder,
            clock,
        )
        self.prober = _SteeredProber(runner, recorder, is_ready)
        self._said = is_ready

    def update_pod_status(self, ctx: golang.Context, pod: v1.Pod, pod_status: v1.PodStatus) -> None:
        super().update_pod_status(ctx, pod, pod_status)
        for status in (*pod_status.container_statuses, *pod_status.init_container_statuses):
            said = self._said(pod.metadata.uid, status.name)
            if said is not None and status.state.running is not None:
                status.ready = said


class _SteeredProber(prober.Prober):
    def __init__(self, runner: kubecontainer.CommandRunner, recorder: record.EventRecorder, is_ready: IsReady) -> None:
        super().__init__(runner, recorder)
        self._said = is_ready

    def probe(
        self,
        ctx: golang.Context,
        probe_type: prober.ProbeType,
        pod: v1.Pod,
        status: v1.PodStatus,
        container: v1.Container,
        container_id: kubecontainer.ContainerID,
    ) -> results.Result:
        said = self._said(pod.metadata.uid, container.name) if probe_type is prober.ProbeType.READINESS else None
        if said is not None:
            return results.SUCCESS if said else results.FAILURE
        return super().probe(ctx, probe_type, pod, status, container, container_id)
