"""Run one probe of one container until the container ends permanently.

Go: pkg/kubelet/prober/worker.go

In Go each worker has a goroutine that waits for its ticker, a trigger or its end. Here one Scheduler waits for all
workers, and its threads run what is the body of that goroutine's loop in Go.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from kubelet import container as kubecontainer
from kubelet.prober import results
from kubelet.prober.prober import ProbeType, probe_spec
from kubelet.prober.status_index import StatusIndex
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import types
from pkg.golang.turn import Turn, with_turn

if TYPE_CHECKING:
    from kubelet.prober.prober_manager import Manager

_INITIAL_VALUES = {
    ProbeType.READINESS: results.FAILURE,
    ProbeType.LIVENESS: results.SUCCESS,
    ProbeType.STARTUP: results.UNKNOWN,
}


class WorkerState(NamedTuple):
    """Hold the state of a worker.

    `last_result` is None before the first probe. `result_run` is the number of equal results in a row.
    """

    last_result: results.Result | None
    result_run: int
    spec: v1.Probe
    # `due` is the time of the next probe, on the manager's monotonic clock.
    due: float
    on_hold: bool


class Worker:
    """Probe one container. One thread at a time runs the worker; stop and trigger are thread-safe."""

    def __init__(
        self, manager: Manager, probe_type: ProbeType, pod: v1.Pod, container: v1.Container, index: StatusIndex
    ) -> None:
        spec = probe_spec(container, probe_type)
        assert spec is not None
        self.probe_type = probe_type
        self.pod = pod
        self.container = container
        self._index = index
        self._spec = spec
        self._manager = manager
        self._results = manager.results_manager(probe_type)
        self._turn = Turn(manager.turns)
        # `_container_id` is the ID of the container at the last probe; it is None before the first probe.
        self._container_id: kubecontainer.ContainerID | None = None
        self._last_result: results.Result | None = None
        # `_result_run` is the number of equal results in a row up to the last one.
        self._result_run = 0
        # A worker on hold waits for a new container. A liveness worker pauses after a failure, because a command in a
        # container that is being stopped can damage its state (kubernetes issue 21751). A startup worker pauses after
        # its result, to save needless probes (issue 117153).
        self._on_hold = False
        # Validation accepts only positive periods. With any other period the worker would run without a pause.
        self._period = float(max(spec.period_seconds or 10, 1))
        # `_due` is the time of the next probe, on the monotonic clock.
        # DIVERGES (platform): a hash of the pod and the container determines when within its period a probe begins.
        # Go: pkg/kubelet/prober/worker.go, (*worker).run: during one period after the kubelet's start a probe begins at
        # a random time. Later it begins at once, before the container exists, and again one period after that.
        # Why: simultaneous probes of many pods would have to share one interpreter lock.
        # Test: worker_test.py:test_probes_are_spread_over_the_period
        self._due = manager.clock.monotonic() + self._share_of_period() * self._period

    @property
    def pod_uid(self) -> types.UID:
        return self.pod.metadata.uid

    @property
    def due(self) -> float:
        return self._due

    def stop(self) -> None:
        """Stop probing, and cancel a running probe. The method does not wait for the probe to end."""
        self._manager.scheduler.stop(self)

    def trigger(self) -> None:
        """Probe the container now instead of at its next due time."""
        self._manager.scheduler.trigger(self)

    @property
    def state(self) -> WorkerState:
        """Return the worker's state, for inspection only."""
        return WorkerState(self._last_result, self._result_run, self._spec, self._due, self._on_hold)

    def run_once(self, ctx: golang.Context, triggered: bool) -> bool:
        """Probe because the probe is due or triggered; report whether the worker must run again.

        Go: (*worker).run; one iteration of its loop
        """
        with self._turn:
            self._begin(triggered)
            return self.do_probe(with_turn(ctx, self._turn))

    def _begin(self, triggered: bool) -> None:
        """Record how late this probe is, and set the time of the next one."""
        now = self._manager.clock.monotonic()
        if triggered:
            self._due = now + self._period
            klog.v(4).info_s(
                "Triggered Probe by manual run",
                probeType=self.probe_type,
                pod=klog.kobj(self.pod),
                podUID=self.pod.metadata.uid,
                containerName=self.container.name,
            )
        else:
            late = max(0.0, now - self._due)
            self._manager.observe_lateness(self, late)
            # The worker skips missed periods.
            self._due += self._period * (1 + late // self._period)

    def end(self) -> None:
        """Forget the container's result and remove the worker from its manager.

        Go: (*worker).run
        """
        if self._container_id is not None:
            self._results.remove(self._container_id)
        self._manager.remove_worker(self)

    def _share_of_period(self) -> float:
        """Return the part of the period after which this probe is due; a restart of the kubelet does not change it."""
        who = f"{self.pod.metadata.uid}/{self.container.name}/{self.probe_type}"
        return zlib.crc32(who.encode()) / 2**32

    def do_probe(self, ctx: golang.Context) -> bool:
        """Probe the container once; report whether the worker must run again."""
        try:
            return self._do_probe(ctx)
        except golang.Canceled:
            # Another context than this worker's may have been cancelled.
            return ctx.err() is None
        except Exception as err:
            # The fault of one probe does not end the worker, as in Go.
            klog.error_s(err, "Probe worker failed to probe", pod=klog.kobj(self.pod), probeType=self.probe_type)
            return True

    def _do_probe(self, ctx: golang.Context) -> bool:
        began = self._manager.clock.monotonic()
        status = self._manager.status_manager.get_pod_status(self.pod.metadata.uid)
        if status is None:
            klog.v(3).info_s("No status for pod", pod=klog.kobj(self.pod))
            return True
        if podutil.is_pod_phase_terminal(status.phase):
            klog.v(3).info_s("Pod is terminated, exiting probe worker", pod=klog.kobj(self.pod), phase=status.phase)
            return False
        container = self._index.container_status(status, self.container.name)
        if container is None:
            klog.v(3).info_s(
                "Probe target container not found",
                pod=klog.kobj(self.pod),
                containerName=self.container.name,
            )
            return True
        container_id = self._follow_container(ctx, container)
        if self._on_hold:
            return True
        if container.state.running is None:
            return self._container_stopped(ctx, status, container, container_id)
        if self.pod.metadata.deletion_timestamp is not None and self.probe_type is not ProbeType.READINESS:
            self._results.set(container_id, results.SUCCESS, self.pod, ctx)
            return False
        if not self._is_due(container):
            return True
        try:
            result = self._manager.prober.probe(ctx, self.probe_type, self.pod, status, self.container, container_id)
        except golang.Canceled:
            raise
        except Exception:
            # The prober has already reported the error. A probe that could not run says nothing about the container.
            return True
        self._manager.observe(self, result, self._manager.clock.monotonic() - began)
        self._take(ctx, container_id, result)
        return True

    def _follow_container(self, ctx: golang.Context, status: v1.ContainerStatus) -> kubecontainer.ContainerID:
        """Reset the worker if the container has been replaced since the last probe."""
        container_id = kubecontainer.parse_container_id(status.container_id)
        if container_id == self._container_id:
            return container_id
        if self._container_id is not None:
            self._results.remove(self._container_id)
        self._container_id = container_id
        self._on_hold = False
        if self.probe_type is ProbeType.STARTUP and status.started and self._is_sidecar():
            # The pod counts as initialized only once each sidecar has a result (kubernetes issue 136910).
            self._results.set(container_id, results.SUCCESS, self.pod, ctx)
        # A result from before a restart of the kubelet stays valid until a probe contradicts it.
        if not self._manager.started_before_the_kubelet(self.pod.metadata.uid, status):
            self._results.set(container_id, _INITIAL_VALUES[self.probe_type], self.pod, ctx)
        return container_id

    def _is_sidecar(self) -> bool:
        is_init = any(container.name == self.container.name for container in self.pod.spec.init_containers)
        return is_init and podutil.is_restartable_init_container(self.container)

    def _container_stopped(
        self,
        ctx: golang.Context,
        pod_status: v1.PodStatus,
        status: v1.ContainerStatus,
        container_id: kubecontainer.ContainerID,
    ) -> bool:
        """Record that the container does not run; report whether it may run again."""
        klog.v(3).info_s("Non-running container probed", pod=klog.kobj(self.pod), containerName=self.container.name)
        self._results.set(container_id, results.FAILURE, self.pod, ctx)
        ended = status.state.terminated
        if ended is None or podutil.container_should_restart(self.container, self.pod.spec, ended.exit_code):
            return True
        restarts_all = features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS)
        return restarts_all and self._index.all_containers_restart(pod_status)

    def _is_due(self, status: v1.ContainerStatus) -> bool:
        """Report whether the container has run long enough, and is in the phase (start-up or later) of this probe."""
        running = status.state.running
        if running is not None and running.started_at is not None:
            # time of day: the runtime reports the container's start as a time of day.
            age = self._manager.clock.since(running.started_at)
            # DIVERGES (fault of Go): a container whose start time lies in the future, for example because somebody has
            # set back the clock, is probed.
            # Go: pkg/kubelet/prober/worker.go, (*worker).doProbe: the container is not probed before its start time.
            # Why: while the start time lies in the future, a container that hangs would not be restarted.
            # Test: worker_test.py:test_initial_delay_when_the_clock_is_set_back
            if 0 <= age < self._spec.initial_delay_seconds:
                return False
        return bool(status.started) != (self.probe_type is ProbeType.STARTUP)

    def _take(self, ctx: golang.Context, container_id: kubecontainer.ContainerID, result: results.Result) -> None:
        """Count the result, and publish it once enough equal results have come in a row."""
        self._result_run = self._result_run + 1 if result == self._last_result else 1
        self._last_result = result
        failed = result == results.FAILURE
        needed = self._spec.failure_threshold if failed else self._spec.success_threshold
        if self._result_run < (needed or 1):
            return
        self._results.set(container_id, result, self.pod, ctx)
        if (self.probe_type is ProbeType.LIVENESS and failed) or self.probe_type is ProbeType.STARTUP:
            self._on_hold = True
            self._result_run = 0
