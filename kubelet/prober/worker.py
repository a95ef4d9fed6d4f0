"""Probes one container with one probe until the container is done.

Go: pkg/kubelet/prober/worker.go

In Go each worker has a goroutine that waits for its ticker, for a trigger or for its end. Here a Scheduler waits for
them all, and runs on its threads what the loop of that goroutine does.
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
    """The last result, None before the first, and how many equal ones came in a row; when the next tick is due."""

    last_result: results.Result | None
    result_run: int
    spec: v1.Probe
    # By the manager's monotonic clock.
    due: float
    on_hold: bool


class Worker:
    """The state belongs to the thread that runs the worker, one at a time; stop and trigger are for all threads."""

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
        # The container that was probed last; None before the first.
        self._container_id: kubecontainer.ContainerID | None = None
        self._last_result: results.Result | None = None
        # Length of the run of equal results that the last one ends.
        self._result_run = 0
        # A failed liveness probe waits for the restart, a startup probe that has answered for the next container.
        self._on_hold = False
        # A period that is not positive passes no validation; with one the worker would run without a pause.
        self._period = float(max(spec.period_seconds or 10, 1))
        # When the next tick comes, on the clock's monotonic time.
        # DIVERGES (platform): at which moment of its period a probe begins is a hash of its pod and container.
        # Go: pkg/kubelet/prober/worker.go, (*worker).run: only for one period after the kubelet's start it begins at
        # a random moment; later it begins at once, before there is a container, and again a period after that.
        # Why: probes of many pods that come at the same time would have to share one interpreter lock.
        # Test: worker_test.py:test_probes_are_spread_over_the_period
        self._due = manager.clock.monotonic() + self._share_of_period() * self._period

    @property
    def pod_uid(self) -> types.UID:
        return self.pod.metadata.uid

    @property
    def due(self) -> float:
        return self._due

    def stop(self) -> None:
        """End the probing, also a probe that runs; does not wait for its end."""
        self._manager.scheduler.stop(self)

    def trigger(self) -> None:
        """Have the container probed now and not at the next tick."""
        self._manager.scheduler.trigger(self)

    @property
    def state(self) -> WorkerState:
        """Where it stands, for those who only look."""
        return WorkerState(self._last_result, self._result_run, self._spec, self._due, self._on_hold)

    def run_once(self, ctx: golang.Context, triggered: bool) -> bool:
        """Probe, as it is time or as somebody has triggered it. Whether to go on.

        Go: (*worker).run, one turn of its loop
        """
        with self._turn:
            self._begin(triggered)
            return self.do_probe(with_turn(ctx, self._turn))

    def _begin(self, triggered: bool) -> None:
        """Tell how late this round is, and when the next one is due."""
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
            # Ticks that were missed are not made up for.
            self._due += self._period * (1 + late // self._period)

    def end(self) -> None:
        """Forget the container's result, and the worker, as Go's does at its end. Go: (*worker).run"""
        if self._container_id is not None:
            self._results.remove(self._container_id)
        self._manager.remove_worker(self)

    def _share_of_period(self) -> float:
        """Which part of the period has passed when this probe's turn comes; the same after a restart of the kubelet."""
        who = f"{self.pod.metadata.uid}/{self.container.name}/{self.probe_type}"
        return zlib.crc32(who.encode()) / 2**32

    def do_probe(self, ctx: golang.Context) -> bool:
        """One round. Whether there is to be another."""
        try:
            return self._do_probe(ctx)
        except golang.Canceled:
            # Somebody else's context may have been cancelled.
            return ctx.err() is None
        except Exception as err:
            # As in Go a fault of one round does not end the probing.
            klog.error_s(err, "Probe round failed", pod=klog.kobj(self.pod), probeType=self.probe_type)
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
            # The prober has told of it. What could not be carried out says nothing of the container.
            return True
        self._manager.observe(self, result, self._manager.clock.monotonic() - began)
        self._take(ctx, container_id, result)
        return True

    def _follow_container(self, ctx: golang.Context, status: v1.ContainerStatus) -> kubecontainer.ContainerID:
        """Begin anew when the container is another than last time."""
        container_id = kubecontainer.parse_container_id(status.container_id)
        if container_id == self._container_id:
            return container_id
        if self._container_id is not None:
            self._results.remove(self._container_id)
        self._container_id = container_id
        self._on_hold = False
        if self.probe_type is ProbeType.STARTUP and status.started and self._is_sidecar():
            # Regular containers are only seen as initialized once sidecars have a result.
            self._results.set(container_id, results.SUCCESS, self.pod, ctx)
        # What was known of it before a restart of the kubelet stands until a probe says otherwise.
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
        """Note that it does not run. Whether it will again."""
        klog.v(3).info_s("Non-running container probed", pod=klog.kobj(self.pod), containerName=self.container.name)
        self._results.set(container_id, results.FAILURE, self.pod, ctx)
        ended = status.state.terminated
        if ended is None or podutil.container_should_restart(self.container, self.pod.spec, ended.exit_code):
            return True
        restarts_all = features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS)
        return restarts_all and self._index.all_containers_restart(pod_status)

    def _is_due(self, status: v1.ContainerStatus) -> bool:
        """Whether the container has run long enough, and this probe's time (before or after its start-up) is now."""
        running = status.state.running
        if running is not None and running.started_at is not None:
            # time of day: the runtime says when the container started.
            age = self._manager.clock.since(running.started_at)
            # DIVERGES (fault of Go): a container whose start lies in the future, as after the clock has been set back,
            # is probed.
            # Go: pkg/kubelet/prober/worker.go, (*worker).doProbe: it is not probed before that moment.
            # Why: a container that hangs would not be restarted for as long as the clock was set back.
            # Test: worker_test.py:test_initial_delay_when_the_clock_is_set_back
            if 0 <= age < self._spec.initial_delay_seconds:
                return False
        return bool(status.started) != (self.probe_type is ProbeType.STARTUP)

    def _take(self, ctx: golang.Context, container_id: kubecontainer.ContainerID, result: results.Result) -> None:
        """Count the result, and announce it once it came often enough in a row."""
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
