"""Decide which containers are probed, and derive `started` and `ready` from the results.

Go: pkg/kubelet/prober/prober_manager.go
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kubelet import container as kubecontainer
from kubelet import metrics as kubeletmetrics
from kubelet.prober import results
from kubelet.prober.prober import Prober, ProbeType, probe_spec
from kubelet.prober.scheduler import Scheduler
from kubelet.prober.status_index import StatusIndex
from kubelet.prober.worker import Worker
from pkg import golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery import types
from pkg.component_base import metrics
from pkg.golang.turn import Turns

if TYPE_CHECKING:
    from pkg.client_go.tools import record

# The kubelet serves these metrics at /metrics/probes.
PROBER_RESULTS = metrics.new_counter(
    "prober_probe_total",
    "Number of probes by result.",
    ["probe_type", "result", "container", "pod", "namespace", "pod_uid"],
    level=metrics.BETA,
)
PROBER_DURATION = metrics.new_histogram(
    "prober_probe_duration_seconds",
    "Duration in seconds of a probe that did not fail.",
    ["probe_type", "container", "pod", "namespace"],
)
_RESULT_LABELS = {results.SUCCESS: "successful", results.FAILURE: "failed", results.UNKNOWN: "unknown"}


class StatusProvider(Protocol):
    """Define what the prober needs from the status manager."""

    def get_pod_status(self, uid: types.UID) -> v1.PodStatus | None: ...


class _ProbeKey(NamedTuple):
    pod_uid: types.UID
    container_name: str
    probe_type: ProbeType


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSnapshot:
    """Describe the state of one probe of one container at one moment, for inspection only.

    Go: none
    """

    pod_uid: types.UID
    container: str
    probe_type: ProbeType
    spec: v1.Probe
    # `last_result` is None before the first result. `result_run` is the number of equal results in a row.
    last_result: results.Result | None
    result_run: int
    # `due_in` is the time in seconds until the next probe, unless a trigger causes an earlier one.
    due_in: float


class Manager:
    """Start and stop probe workers as pods come and go. All methods are thread-safe."""

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
        # `start_time` has no fraction because the times in statuses are whole seconds.
        self.start_time = self.clock.now().replace(microsecond=0)
        self._results = {
            ProbeType.LIVENESS: liveness_manager,
            ProbeType.READINESS: readiness_manager,
            ProbeType.STARTUP: startup_manager,
        }
        # The context of a pod's sync would end with the sync, but probing continues.
        ctx, self._cancel = golang.with_cancel(golang.background())
        self.scheduler = Scheduler(ctx, self.clock)
        # Hundreds of threads may run probes. A pod's author, and the container that responds, determine how much of the
        # interpreter's time a probe takes: ten redirects with a head of 64 KiB each take 30 ms. A probe gives up its
        # turn wherever it waits: for a server, for the runtime, or for the reader of its results.
        # DIVERGES (platform): only a few probes work at a time; those that have used the least time come first.
        # Go: pkg/kubelet/prober/worker.go, (*worker).doProbe: any number of probes work at the same time.
        # Why: Python runs one thread at a time, and all other threads of the process would have to wait for every
        # probe.
        # Test: worker_test.py:test_few_probes_work_at_a_time
        self.turns = Turns(by_use=True)
        self._lock = threading.Lock()  # This lock guards the two fields below.
        self._workers: dict[_ProbeKey, Worker] = {}
        # `_inherited` holds the last reported statuses of the containers that are older than this kubelet, by the pod's
        # UID and the container's ID.
        self._inherited: dict[str, dict[str, v1.ContainerStatus]] = {}

    def results_manager(self, probe_type: ProbeType) -> results.Manager:
        return self._results[probe_type]

    def add_pod(self, ctx: golang.Context, pod: v1.Pod) -> None:
        """Start probing those containers of the pod that are not probed yet. The probing lasts until remove_pod."""
        self._note_inherited(pod)
        index = StatusIndex(pod)
        for container in _probed_containers(pod):
            for probe_type in ProbeType:
                if probe_spec(container, probe_type) is None:
                    continue
                key = _ProbeKey(pod.metadata.uid, container.name, probe_type)
                with self._lock:
                    if key in self._workers:
                        continue
                    worker = self._workers[key] = Worker(self, probe_type, pod, container, index)
                    try:
                        self.scheduler.add(worker)
                    except BaseException:
                        # If the entry stayed, the pod's next sync would assume that the worker runs.
                        del self._workers[key]
                        raise
        self.scheduler.tend()

    def stop_liveness_and_startup(self, pod: v1.Pod) -> None:
        """Stop the probes that could restart a container of the terminating pod; readiness probes continue.

        Sidecars outlive the pod's other containers, so all their probes continue.
        """
        self._stop(_keys(pod.metadata.uid, pod.spec.containers, (ProbeType.LIVENESS, ProbeType.STARTUP)))

    def remove_pod(self, pod: v1.Pod) -> None:
        """Stop all probes of the pod."""
        with self._lock:
            self._inherited.pop(pod.metadata.uid, None)
        self._stop(_keys(pod.metadata.uid, _probed_containers(pod), ProbeType))

    def cleanup_pods(self, desired_pods: Collection[types.UID]) -> None:
        """Stop all probes of pods whose UID is not in desired_pods."""
        with self._lock:
            unwanted = [key for key in self._workers if key.pod_uid not in desired_pods]
            self._inherited = {uid: known for uid, known in self._inherited.items() if uid in desired_pods}
        self._stop(unwanted)
        self.scheduler.tend()

    def stop_all(self) -> None:
        """Stop all probes permanently, including those that wait for a reader of their results.

        The kubelet calls this method when it ends.
        """
        self._cancel()
        self.scheduler.end_all()

    def _stop(self, keys: Iterable[_ProbeKey]) -> None:
        with self._lock:
            workers = [self._workers[key] for key in keys if key in self._workers]
        for worker in workers:
            worker.stop()

    def remove_worker(self, worker: Worker) -> None:
        """Remove a worker that has ended. The scheduler's thread calls this method through the worker."""
        key = _ProbeKey(worker.pod.metadata.uid, worker.container.name, worker.probe_type)
        with self._lock:
            if self._workers.get(key) is not worker:
                return
            del self._workers[key]
        for result in _RESULT_LABELS:
            PROBER_RESULTS.remove(*_result_labels(worker, result))
        PROBER_DURATION.remove(*_duration_labels(worker))

    def workers(self) -> list[Worker]:
        """Return the current workers, for inspection only."""
        with self._lock:
            return list(self._workers.values())

    def snapshot(self) -> list[ProbeSnapshot]:
        """Return the current state of each probe.

        Go: none
        """
        now = self.clock.monotonic()
        return [_snapshot(worker, now) for worker in self.workers()]

    def worker_count(self) -> int:
        with self._lock:
            return len(self._workers)

    def observe(self, worker: Worker, result: results.Result, duration: float) -> None:
        """Count a result in the metrics, and unless it is a failure also record its duration in seconds."""
        PROBER_RESULTS.labels(*_result_labels(worker, result)).inc()
        if result != results.FAILURE:
            PROBER_DURATION.labels(*_duration_labels(worker)).observe(duration)

    def observe_lateness(self, worker: Worker, seconds: float) -> None:
        """Record how many seconds after its due time a probe began."""
        kubeletmetrics.PROBER_LATENESS.labels(worker.probe_type).observe(seconds)

    def update_pod_status(self, ctx: golang.Context, pod: v1.Pod, pod_status: v1.PodStatus) -> None:
        """Set `started` and `ready` of the container statuses in pod_status, which must belong to the caller."""
        self._note_inherited(pod)
        containers = {container.name: container for container in pod.spec.containers}
        init_containers = {container.name: container for container in pod.spec.init_containers}
        for container_status in pod_status.container_statuses:
            spec = containers.get(container_status.name)
            container_status.started = self._is_container_started(pod, container_status)
            if container_status.started:
                container_status.ready = self._is_ready(pod, container_status, spec)
        for container_status in pod_status.init_container_statuses:
            container_status.started = self._is_container_started(pod, container_status)
            spec = init_containers.get(container_status.name)
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

    def _is_container_started(self, pod: v1.Pod, status: v1.ContainerStatus) -> bool:
        if status.state.running is None:
            return False
        container_id = kubecontainer.parse_container_id(status.container_id)
        result = self._results[ProbeType.STARTUP].get(container_id)
        if result is not None:
            return result == results.SUCCESS
        # Either the container had started before the kubelet restarted, or it has no startup probe.
        known = self._inherited_status(pod, status)
        if status.started or (known is not None and known.started):
            return True
        return self._worker(pod, status.name, ProbeType.STARTUP) is None

    def _is_ready(self, pod: v1.Pod, status: v1.ContainerStatus, spec: v1.Container | None) -> bool:
        if status.state.running is None:
            return False
        container_id = kubecontainer.parse_container_id(status.container_id)
        result = self._results[ProbeType.READINESS].get(container_id)
        if result == results.SUCCESS:
            return True
        worker = self._worker(pod, status.name, ProbeType.READINESS)
        is_old = (
            spec is not None
            and spec.readiness_probe is not None
            and self.started_before_the_kubelet(pod.metadata.uid, status)
        )
        if is_old and result is None:
            return self._was_ready(pod, status)
        return worker is None and not is_old

    def probe_unready(self, pod: v1.Pod, pod_status: v1.PodStatus) -> None:
        """Trigger the readiness probes of started containers that are not ready.

        The caller must have stored the new status in the status manager.

        DIVERGES (fault of Go): a container that may be ready is probed as soon as the workers can see its new status.
        Go: pkg/kubelet/prober/prober_manager.go, (*manager).UpdatePodStatus: the Go kubelet triggers the probe while it
        generates the status.
        Why: a faster worker finds no running container in the old status, and the pod becomes ready one period later.
        Test: prober_manager_test.py:test_container_that_is_not_ready_is_probed_at_once
        """
        for status in (*pod_status.container_statuses, *pod_status.init_container_statuses):
            if status.state.running is None or not status.started or status.ready:
                continue
            result = self._results[ProbeType.READINESS].get(kubecontainer.parse_container_id(status.container_id))
            if result is None and self.started_before_the_kubelet(pod.metadata.uid, status):
                # The probe waits for its normal time, so that not all probes begin at once after a restart of the
                # kubelet.
                continue
            worker = self._worker(pod, status.name, ProbeType.READINESS)
            if worker is not None:
                worker.trigger()

    def started_before_the_kubelet(self, pod_uid: types.UID, status: v1.ContainerStatus) -> bool:
        """Report whether the running container is older than this kubelet, and thus may have been ready before.

        DIVERGES (fault of Go): a container that started at any time before the kubelet keeps its readiness until it is
        probed.
        Go: pkg/kubelet/prober/prober_manager.go, kubeletRestartGracePeriod: the Go kubelet keeps it only if the
        container started more than 10 seconds before the kubelet; other containers become not ready.
        Why: a ready container would lose its traffic because the kubelet restarted.
        Test: prober_manager_test.py:test_restart_of_the_kubelet_leaves_containers_ready,
        worker_test.py:test_restart_of_the_kubelet_flips_no_result
        """
        with self._lock:
            if status.container_id in self._inherited.get(pod_uid, {}):
                return True
        return self._started_earlier(status)

    def _started_earlier(self, status: v1.ContainerStatus) -> bool:
        running = status.state.running
        return running is not None and running.started_at is not None and running.started_at < self.start_time

    def inherit(self, pod_uid: types.UID, status: v1.PodStatus) -> dict[str, v1.ContainerStatus]:
        """Record the last reported status of a static pod, which comes from its mirror pod.

        Return the containers that this call has recorded, by their IDs. The static pod itself has no status.

        DIVERGES (fault of Go): containers of static pods keep their readiness when the kubelet restarts.
        Go: pkg/kubelet/prober/prober_manager.go, (*manager).setReadyStateOnKubeletRestart: the Go kubelet reads the
        conditions in the pod's status. A manifest has none, so the containers become not ready.
        Why: static pods, such as those of the control plane, would lose their traffic at each restart.
        Test: prober_manager_test.py:test_restart_of_the_kubelet_leaves_static_pods_as_their_mirrors_tell
        """
        known = _known_containers(status)
        before = {key: each for key, each in known.items() if self._started_earlier(each)}
        with self._lock:
            if self._inherited.get(pod_uid):
                return {}
            self._inherited[pod_uid] = before
        return before

    def _inherited_status(self, pod: v1.Pod, status: v1.ContainerStatus) -> v1.ContainerStatus | None:
        with self._lock:
            return self._inherited.get(pod.metadata.uid, {}).get(status.container_id)

    def _note_inherited(self, pod: v1.Pod) -> None:
        """Record the first status that the pod arrives with: an earlier run of the kubelet has reported it."""
        with self._lock:
            if pod.metadata.uid not in self._inherited:
                self._inherited[pod.metadata.uid] = _known_containers(pod.status)

    def _was_ready(self, pod: v1.Pod, status: v1.ContainerStatus) -> bool:
        """Report whether the container was ready in the status that an earlier run of the kubelet has reported.

        DIVERGES (fault of Go): after a restart of the kubelet, each container of a pod keeps its own readiness.
        Go: pkg/kubelet/prober/prober_manager.go, (*manager).setReadyStateOnKubeletRestart: each container gets the
        readiness of the pod.
        Why: one container that was not ready would make all containers of the pod not ready, and a container that
        started after the pod's last status would count as ready.
        Test: prober_manager_test.py:test_restart_of_the_kubelet_leaves_each_container_as_it_was,
        prober_manager_test.py:test_container_that_the_kubelet_before_started_last_is_not_ready_for_another_that_was
        """
        known = self._inherited_status(pod, status)
        return known is not None and known.ready


def _probed_containers(pod: v1.Pod) -> Iterator[v1.Container]:
    """Yield the regular containers and the sidecars. Ordinary init containers have no probes."""
    yield from pod.spec.containers
    yield from (c for c in pod.spec.init_containers if podutil.is_restartable_init_container(c))


def _known_containers(status: v1.PodStatus) -> dict[str, v1.ContainerStatus]:
    """Return the container statuses by container ID."""
    statuses = [*status.container_statuses, *status.init_container_statuses]
    return {each.container_id: each for each in statuses if each.container_id}


def _keys(
    pod_uid: types.UID, containers: Iterable[v1.Container], probe_types: Iterable[ProbeType]
) -> Iterator[_ProbeKey]:
    for container, probe_type in itertools.product(containers, probe_types):
        yield _ProbeKey(pod_uid, container.name, probe_type)


def _snapshot(worker: Worker, now: float) -> ProbeSnapshot:
    state = worker.state
    return ProbeSnapshot(
        pod_uid=worker.pod_uid,
        container=worker.container.name,
        probe_type=worker.probe_type,
        spec=state.spec,
        last_result=state.last_result,
        result_run=state.result_run,
        due_in=max(0.0, state.due - now),
    )


def _result_labels(worker: Worker, result: results.Result) -> tuple[str, ...]:
    pod = worker.pod.metadata
    label = _RESULT_LABELS[result]
    return str(worker.probe_type), label, worker.container.name, pod.name, pod.namespace, pod.uid


def _duration_labels(worker: Worker) -> tuple[str, ...]:
    pod = worker.pod.metadata
    return str(worker.probe_type), worker.container.name, pod.name, pod.namespace
