"""Which containers are probed, and what their probes say about started and ready.

Go: pkg/kubelet/prober/prober_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubelet import container as kubecontainer
from kubelet import metrics
from kubelet.prober import results
from kubelet.prober.prober import Prober, ProbeType, probe_spec
from kubelet.prober.worker import RESTART_GRACE_PERIOD, Worker
from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clocklib

if TYPE_CHECKING:
    from pkg.client_go.tools import record


class StatusProvider(Protocol):
    """The statuses of pods."""

    def get_pod_status(self, uid: str) -> tuple[v1.PodStatus, bool]: ...


class _ProbeKey(NamedTuple):
    pod_uid: str
    container_name: str
    probe_type: ProbeType


class Manager:
    """Starts and stops workers as pods come and go. Every method is safe from any thread."""

    def __init__(
        self,
        status_manager: StatusProvider,
        liveness_manager: results.Manager,
        readiness_manager: results.Manager,
        startup_manager: results.Manager,
        runner: kubecontainer.CommandRunner,
        recorder: record.EventRecorder,
        clock: clocklib.Clock | None = None,
    ) -> None:
        self.status_manager = status_manager
        self.prober = Prober(runner, recorder)
        self.clock = clock or clocklib.RealClock()
        self.start_time = self.clock.now()
        self._results = {
            ProbeType.LIVENESS: liveness_manager,
            ProbeType.READINESS: readiness_manager,
            ProbeType.STARTUP: startup_manager,
        }
        self._lock = threading.Lock()  # guards _workers
        self._workers: dict[_ProbeKey, Worker] = {}

    def results_manager(self, probe_type: ProbeType) -> results.Manager:
        return self._results[probe_type]

    def add_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Probe the pod's containers, those that are not probed already, until remove_pod."""
        # The pod worker's context ends with each step of the pod; probing goes on.
        probing = golang.without_cancel(ctx)
        for container in _probed_containers(pod):
            for probe_type in ProbeType:
                if probe_spec(container, probe_type) is None:
                    continue
                key = _ProbeKey(pod.metadata.uid, container.name, probe_type)
                with self._lock:
                    if key in self._workers:
                        continue
                    worker = self._workers[key] = Worker(self, probe_type, pod, container)
                name = f"prober-{probe_type.lower()}-{pod.metadata.name}-{container.name}"
                golang.go(worker.run, probing, name=name)

    def stop_liveness_and_startup(self, pod: v1.Pod) -> None:
        """Stop what could have a container of the terminating pod restarted; readiness is still probed."""
        self._stop(pod.metadata.uid, (ProbeType.LIVENESS, ProbeType.STARTUP))

    def remove_pod(self, pod: v1.Pod) -> None:
        """Stop all probes of the pod."""
        self._stop(pod.metadata.uid, tuple(ProbeType))

    def cleanup_pods(self, desired_pods: Collection[str]) -> None:
        """Stop all probes of pods whose uid is not desired."""
        with self._lock:
            unwanted = {key.pod_uid for key in self._workers if key.pod_uid not in desired_pods}
        for uid in unwanted:
            self._stop(uid, tuple(ProbeType))

    def stop_all(self) -> None:
        """Stop every probe; for the end of the kubelet."""
        self.cleanup_pods(())

    def _stop(self, pod_uid: str, probe_types: tuple[ProbeType, ...]) -> None:
        with self._lock:
            workers = [
                worker
                for key, worker in self._workers.items()
                if key.pod_uid == pod_uid and key.probe_type in probe_types
            ]
        for worker in workers:
            worker.stop()

    def remove_worker(self, worker: Worker) -> None:
        """Called by a worker whose thread ends."""
        key = _ProbeKey(worker.pod.metadata.uid, worker.container.name, worker.probe_type)
        with self._lock:
            if self._workers.get(key) is worker:
                del self._workers[key]

    def worker_count(self) -> int:
        with self._lock:
            return len(self._workers)

    def observe(self, worker: Worker, result: results.Result) -> None:
        """Count a result in the metrics."""
        label = {results.SUCCESS: "successful", results.FAILURE: "failed"}.get(result, "unknown")
        pod = worker.pod.metadata
        metrics.PROBER_RESULTS.labels(
            str(worker.probe_type), label, worker.container.name, pod.name, pod.namespace, pod.uid
        ).inc()

    def update_pod_status(self, ctx: golang.Context, pod: v1.Pod, pod_status: v1.PodStatus) -> None:
        """Set `started` and `ready` of the container statuses in pod_status, which must be the caller's own."""
        for container_status in pod_status.container_statuses:
            spec = _find(pod.spec.containers, container_status.name)
            container_status.started = self._is_started(pod, container_status)
            if container_status.started:
                container_status.ready = self._is_ready(pod, container_status, spec)
        for container_status in pod_status.init_container_statuses:
            container_status.started = self._is_started(pod, container_status)
            spec = _find(pod.spec.init_containers, container_status.name)
            if spec is None:
                klog.v(4).info_s(
                    "Mismatch between pod spec and status, likely programmer error",
                    pod=klog.kobj(pod),
                    containerName=container_status.name,
                )
            elif podutil.is_restartable_init_container(spec):
                if container_status.started:
                    container_status.ready = self._is_ready(pod, container_status, spec)
            else:
                ended = container_status.state.terminated
                container_status.ready = ended is not None and ended.exit_code == 0

    def _worker(self, pod: v1.Pod, container_name: str, probe_type: ProbeType) -> Worker | None:
        with self._lock:
            return self._workers.get(_ProbeKey(pod.metadata.uid, container_name, probe_type))

    def _is_started(self, pod: v1.Pod, status: v1.ContainerStatus) -> bool:
        if status.state.running is None:
            return False
        container_id = kubecontainer.parse_container_id(status.container_id)
        result = self._results[ProbeType.STARTUP].get(container_id)
        if result is not None:
            return result == results.SUCCESS
        # It had started before the kubelet was restarted; or nothing probes its start-up.
        return bool(status.started) or self._worker(pod, status.name, ProbeType.STARTUP) is None

    def _is_ready(self, pod: v1.Pod, status: v1.ContainerStatus, spec: v1.Container | None) -> bool:
        if status.state.running is None:
            return False
        container_id = kubecontainer.parse_container_id(status.container_id)
        result = self._results[ProbeType.READINESS].get(container_id)
        if result == results.SUCCESS:
            return True
        worker = self._worker(pod, status.name, ProbeType.READINESS)
        if worker is not None:
            # Do not wait for the tick: the pod may be ready since a moment ago.
            worker.trigger()
        if spec is not None and self._started_before_the_kubelet(status):
            if result is None and worker is not None:
                return podutil.is_pod_ready_condition_true(pod.status)
            if spec.readiness_probe is not None and not podutil.is_pod_ready_condition_true(pod.status):
                return False
        return worker is None

    def _started_before_the_kubelet(self, status: v1.ContainerStatus) -> bool:
        running = status.state.running
        if running is None or running.started_at is None:
            return False
        return (self.start_time - running.started_at).total_seconds() > RESTART_GRACE_PERIOD


def _probed_containers(pod: v1.Pod) -> Iterator[v1.Container]:
    """Regular containers and sidecars; plain init containers are not probed."""
    yield from pod.spec.containers
    yield from (c for c in pod.spec.init_containers if podutil.is_restartable_init_container(c))


def _find(containers: list[v1.Container], name: str) -> v1.Container | None:
    return next((container for container in containers if container.name == name), None)
