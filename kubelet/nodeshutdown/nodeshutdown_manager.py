"""Manage the graceful shutdown of the node.

Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager.go, nodeshutdown_manager_linux.go
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kubelet import events as kubeletevents
from kubelet import lifecycle, metrics
from kubelet import types as kubetypes
from kubelet.apis.config import types as kubeletconfig
from kubelet.nodeshutdown import storage
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery import clock as clock_
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.component_base.cli.flag.duration import format_duration

if TYPE_CHECKING:
    from kubelet import eviction
    from pkg.client_go.tools import record

NODE_SHUTDOWN_NOT_ADMITTED_REASON = "NodeShutdown"
_NODE_SHUTDOWN_NOT_ADMITTED_MESSAGE = "Pod was rejected as the node is shutting down."
_LOCAL_STORAGE_STATE_FILE = "graceful_node_shutdown_state"
_NODE_SHUTDOWN_REASON = "Terminated"
_NODE_SHUTDOWN_MESSAGE = "Pod was terminated in response to imminent node shutdown."
_DEFAULT_PRIORITY = 0
_DBUS_RECONNECT_PERIOD = 1.0
_RELOAD_BACKOFF = 0.1
_RELOAD_STEPS = 5

ActivePodsFunc = Callable[[], list[v1.Pod]]


class NodeShuttingDownError(RuntimeError):
    """Signal that the node is shutting down."""

    def __init__(self) -> None:
        super().__init__("node is shutting down")


class LockRefusedError(RuntimeError):
    """Signal that logind grants no lock because a shutdown is already in progress."""

    def __init__(self) -> None:
        super().__init__("a shutdown is in progress and can no longer be delayed")


class DBusInhibiter(Protocol):
    """Define how the manager delays shutdowns; see systemd.DBusCon."""

    def current_inhibit_delay(self) -> float: ...

    def inhibit_shutdown(self) -> int | None:
        """Return a lock, or None while a shutdown is in progress, because logind then grants none."""
        ...

    def release_inhibit_lock(self, lock: int, /) -> None: ...

    def reload_logind_conf(self) -> None: ...

    def monitor_shutdown(self) -> golang.Channel[bool]: ...

    def override_inhibit_delay(self, inhibit_delay_max: float, /) -> None: ...

    def close(self) -> None: ...


class VolumeManager(Protocol):
    """Define what the manager needs from the volume manager."""

    def wait_for_all_pods_unmount(self, ctx: golang.Context, pods: Sequence[v1.Pod], /) -> None:
        """Wait until no volume of the pods is set up. Raise golang.Canceled, TimeoutError or a group of them."""
        ...


class Manager(Protocol):
    """Define how the kubelet handles a node shutdown. A Manager is also a lifecycle.PodAdmitHandler."""

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult: ...

    def start(self, ctx: golang.Context) -> None:
        """Watch for shutdowns until ctx ends. If that is not possible, log an error and record an event."""
        ...

    def shutdown_status(self) -> Exception | None:
        """Return an error while the node is shutting down."""
        ...


def _system_dbus() -> DBusInhibiter:
    from kubelet.nodeshutdown import systemd  # This import is late because most nodes do not need D-Bus.

    return systemd.DBusCon()


@dataclass(slots=True)
class Config:
    """Hold what a manager needs. Periods are in seconds."""

    volume_manager: VolumeManager
    recorder: record.EventRecorder
    node_ref: v1.ObjectReference
    get_pods_func: ActivePodsFunc
    kill_pod_func: eviction.KillPodFunc
    sync_node_status_func: Callable[[golang.Context], None]
    shutdown_grace_period_requested: float
    shutdown_grace_period_critical_pods: float
    shutdown_grace_period_by_pod_priority: list[kubeletconfig.ShutdownGracePeriodByPodPriority]
    state_directory: Path
    clock: clock_.Clock = field(default_factory=clock_.RealClock)
    system_dbus: Callable[[], DBusInhibiter] = _system_dbus


class ManagerStub:
    """Ignore shutdowns."""

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        return lifecycle.PodAdmitResult(True)

    def start(self, ctx: golang.Context) -> None:
        """Do nothing."""

    def shutdown_status(self) -> Exception | None:
        return None


class PodManager:
    """Kill pods in groups, in the order of increasing priority."""

    def __init__(self, conf: Config) -> None:
        periods = conf.shutdown_grace_period_by_pod_priority
        gate = features.GRACEFUL_NODE_SHUTDOWN_BASED_ON_POD_PRIORITY
        if not features.feature_gate.enabled(gate) or not periods:
            periods = migrate_config(conf.shutdown_grace_period_requested, conf.shutdown_grace_period_critical_pods)
        self.shutdown_grace_period_by_pod_priority = sorted(periods, key=lambda period: period.priority)
        self._clock = conf.clock
        self._kill_pod_func = conf.kill_pod_func
        self._volume_manager = conf.volume_manager

    def period_requested(self) -> float:
        """Return how many seconds all groups together take at most."""
        return sum(period.shutdown_grace_period_seconds for period in self.shutdown_grace_period_by_pod_priority)

    def kill_pods(self, active_pods: Sequence[v1.Pod]) -> None:
        """Kill the pods. Return when they have terminated or their time is over."""
        for group in group_by_priority(self.shutdown_grace_period_by_pod_priority, active_pods):
            if group.pods:
                self._kill_group(group)

    def _kill_group(self, group: PodShutdownGroup) -> None:
        ctx, cancel = golang.with_cancel(golang.background())
        done: golang.Channel[None] = golang.Channel()
        timer = self._clock.new_timer(group.grace_period)
        try:
            golang.go(self._kill_and_unmount, ctx, group, done, name=f"shutdown-group-{group.priority}")
        except golang.ThreadError as err:
            klog.error_s(err, "Shutdown manager kills the pods of a group on its own thread", priority=group.priority)
            bounded, end = golang.with_timeout(ctx, group.grace_period)
            self._kill_and_unmount(bounded, group, done)
            end()
        finished = golang.select(done, timer.channel).took(done)
        timer.stop()
        cancel()
        klog.v(1).info_s(
            "Done waiting for all pods in group to terminate" if finished else "Shutdown manager pod killing time out",
            gracePeriod=group.grace_period,
            priority=group.priority,
        )

    def _kill_and_unmount(self, ctx: golang.Context, group: PodShutdownGroup, done: golang.Channel[None]) -> None:
        """Kill the group's pods and wait for their volumes.

        The volumes must be unmounted before the next group, because later groups contain the pods of volume drivers.
        """
        try:
            self._kill_all(group)
            self._volume_manager.wait_for_all_pods_unmount(ctx, group.pods)
        except Exception as err:
            # The shutdown cannot wait for volumes longer than the group's grace period.
            klog.error_s(
                err,
                "Failed while waiting for all the volumes belonging to Pods in this group to unmount",
                pods=klog.kobjs(group.pods),
            )
        finally:
            done.close()

    def _kill_all(self, group: PodShutdownGroup) -> None:
        """Kill the pods in parallel. Pods for which no thread can be started follow one after the other."""
        killers: list[golang.Thread] = []
        left: list[v1.Pod] = []
        for pod in group.pods:
            try:
                killers.append(golang.go(self._kill_pod, pod, group, name=f"shutdown-kill-{pod.metadata.uid}"))
            except golang.ThreadError as err:
                klog.error_s(err, "Shutdown manager kills a pod after the others", pod=klog.kobj(pod))
                left.append(pod)
        for pod in left:
            self._kill_pod(pod, group)
        for killer in killers:
            killer.join()

    def _kill_pod(self, pod: v1.Pod, group: PodShutdownGroup) -> None:
        grace_period = group.grace_period
        if pod.spec.termination_grace_period_seconds is not None:
            grace_period = min(grace_period, pod.spec.termination_grace_period_seconds)
        klog.v(1).info_s("Shutdown manager killing pod with gracePeriod", pod=klog.kobj(pod), gracePeriod=grace_period)
        try:
            self._kill_pod_func(pod, False, grace_period, lambda status: _set_terminated(pod, status))
        except Exception as err:
            # Any error with one pod must not keep the other pods from being terminated in time.
            klog.v(1).info_s("Shutdown manager failed killing pod", pod=klog.kobj(pod), err=err)
        else:
            klog.v(1).info_s("Shutdown manager finished killing pod", pod=klog.kobj(pod))


def _set_terminated(pod: v1.Pod, status: v1.PodStatus) -> None:
    if status.phase != v1.POD_SUCCEEDED:
        status.phase = v1.POD_FAILED
    status.message = _NODE_SHUTDOWN_MESSAGE
    status.reason = _NODE_SHUTDOWN_REASON
    podutil.update_pod_condition(
        status,
        v1.PodCondition(
            type=v1.DISRUPTION_TARGET,
            observed_generation=podutil.calculate_pod_condition_observed_generation(
                status, pod.metadata.generation, v1.DISRUPTION_TARGET
            ),
            status=v1.CONDITION_TRUE,
            reason=v1.POD_REASON_TERMINATION_BY_KUBELET,
            message=_NODE_SHUTDOWN_MESSAGE,
        ),
    )


def migrate_config(
    shutdown_grace_period_requested: float, shutdown_grace_period_critical_pods: float
) -> list[kubeletconfig.ShutdownGracePeriodByPodPriority]:
    """Return the two periods as periods by priority, or none if they contradict each other."""
    default_period = shutdown_grace_period_requested - shutdown_grace_period_critical_pods
    if shutdown_grace_period_requested == 0 or default_period < 0 or shutdown_grace_period_critical_pods < 0:
        return []
    return [
        kubeletconfig.ShutdownGracePeriodByPodPriority(
            priority=_DEFAULT_PRIORITY, shutdown_grace_period_seconds=int(default_period)
        ),
        kubeletconfig.ShutdownGracePeriodByPodPriority(
            priority=kubetypes.SYSTEM_CRITICAL_PRIORITY,
            shutdown_grace_period_seconds=int(shutdown_grace_period_critical_pods),
        ),
    ]


@dataclass(slots=True)
class PodShutdownGroup:
    """Hold pods with the same grace period, in seconds."""

    priority: int
    grace_period: int
    pods: list[v1.Pod] = field(default_factory=list)


def group_by_priority(
    periods: Sequence[kubeletconfig.ShutdownGracePeriodByPodPriority], pods: Sequence[v1.Pod]
) -> list[PodShutdownGroup]:
    """Group the pods by period.

    A pod belongs to the highest priority that is not above its own, or to the lowest one.
    """
    groups = [PodShutdownGroup(period.priority, period.shutdown_grace_period_seconds) for period in periods]
    priorities = [group.priority for group in groups]
    for pod in pods:
        index = bisect_right(priorities, pod.spec.priority or 0) - 1
        groups[max(index, 0)].pods.append(pod)
    return groups


class ManagerImpl:
    """Delay shutdowns with logind's inhibitor locks.

    At start the manager takes a lock, which delays shutdowns. When a shutdown begins, the manager terminates the pods
    and releases the lock. If the shutdown is canceled after that, the manager takes a lock again.
    """

    def __init__(self, conf: Config, pod_manager: PodManager) -> None:
        self._recorder = conf.recorder
        self._node_ref = conf.node_ref
        self._get_pods = conf.get_pods_func
        self._sync_node_status = conf.sync_node_status_func
        self._clock = conf.clock
        self._system_dbus = conf.system_dbus
        self._pod_manager = pod_manager
        self._dbus_con: DBusInhibiter | None = None
        self._inhibit_lock: int | None = None  # Once the manager's thread runs, only this thread uses the field.
        self._node_shutting_down_mutex = threading.Lock()  # The lock guards _node_shutting_down_now.
        self._node_shutting_down_now = False
        gate = features.GRACEFUL_NODE_SHUTDOWN_BASED_ON_POD_PRIORITY
        self._enable_metrics = features.feature_gate.enabled(gate)
        self._storage = storage.LocalStorage(conf.state_directory / _LOCAL_STORAGE_STATE_FILE)

    def admit(self, attrs: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        """Reject all pods while the node is shutting down."""
        if self.shutdown_status() is None:
            return lifecycle.PodAdmitResult(True)
        return lifecycle.PodAdmitResult(False, NODE_SHUTDOWN_NOT_ADMITTED_REASON, _NODE_SHUTDOWN_NOT_ADMITTED_MESSAGE)

    def start(self, ctx: golang.Context) -> None:
        """Watch for shutdowns until ctx ends.

        DIVERGES (safer): an event of the node reports that graceful shutdown is configured but does not work.
        Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go, (*managerImpl).Start: in the Go kubelet only the log
        reports it.
        Why: an administrator who configured it must learn of the problem before the next shutdown.
        Test: nodeshutdown_manager_test.py:test_no_bus
        """
        try:
            events = self._start(ctx, self._acquire_inhibit_lock)
        except Exception as err:
            # The node is useful even without graceful shutdown.
            klog.error_s(err, "Failed to start node shutdown manager, graceful node shutdown is not active")
            self._recorder.eventf(
                self._node_ref,
                v1.EVENT_TYPE_WARNING,
                kubeletevents.NODE_SHUTDOWN,
                "Graceful node shutdown is configured but not active: %s",
                err,
            )
            return
        golang.go(self._run, ctx, events, name="node-shutdown-manager")
        self._set_metrics()

    def shutdown_status(self) -> Exception | None:
        with self._node_shutting_down_mutex:
            return NodeShuttingDownError() if self._node_shutting_down_now else None

    def _run(self, ctx: golang.Context, events: golang.Channel[bool] | None) -> None:
        while ctx.err() is None:
            if events is not None:
                self._watch(ctx, events)
            if ctx.err() is not None or wait.sleep(ctx, _DBUS_RECONNECT_PERIOD, self._clock):
                break
            klog.v(1).info_s("Restarting watch for node shutdown events")
            try:
                events = self._start(ctx, lambda bus: self._catch_up(ctx, bus))
            except Exception as err:
                events = None  # The bus may come back.
                klog.error_s(err, "Unable to watch the node for shutdown events")
        self._release_inhibit_lock()
        self._disconnect()

    def _catch_up(self, ctx: golang.Context, bus: DBusInhibiter) -> None:
        """Take a new lock, and handle what happened while the bus was unavailable. During a shutdown there is no lock.

        DIVERGES (fault of Go): a shutdown that began or was canceled while the system bus was unavailable is handled
        when the bus is back.
        Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go, (*managerImpl).start: the Go kubelet only tries to
        take a new lock.
        Why: a shutdown that began would terminate no pods; after one that was canceled, the node would stay not ready.
        Test: nodeshutdown_manager_test.py:test_shutdown_that_begins_while_the_bus_is_away,
        nodeshutdown_manager_test.py:test_shutdown_that_is_called_off_while_the_bus_is_away
        """
        try:
            self._acquire_inhibit_lock(bus)
        except LockRefusedError:
            if self.shutdown_status() is None:
                self._handle_event(ctx, True)
        else:
            if self.shutdown_status() is not None:
                self._handle_event(ctx, False)

    def _start(self, ctx: golang.Context, take_lock: Callable[[DBusInhibiter], None]) -> golang.Channel[bool]:
        """Take a lock. Return the channel of shutdown events.

        DIVERGES (fault of Go): the kubelet subscribes to shutdown events before it takes the lock that delays
        shutdowns.
        Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go, (*managerImpl).start: the Go kubelet takes the lock
        first, and releases it if it cannot subscribe.
        Why: the kubelet would miss a shutdown that begins in between, and could not delay one that begins before the
        next attempt.
        Test: nodeshutdown_manager_test.py:test_shutdown_that_begins_as_the_lock_is_taken,
        nodeshutdown_manager_test.py:test_bus_that_cannot_be_joined_again_leaves_the_lock
        """
        self._disconnect()
        self._dbus_con = bus = self._system_dbus()
        try:
            requested = self._pod_manager.period_requested()
            if requested > bus.current_inhibit_delay():
                self._override_inhibit_delay(ctx, bus, requested)
            events = bus.monitor_shutdown()
            take_lock(bus)
            return events
        except Exception:
            self._disconnect()
            raise

    def _override_inhibit_delay(self, ctx: golang.Context, bus: DBusInhibiter, requested: float) -> None:
        """Raise logind's limit for delays, and wait until logind has applied it."""
        bus.override_inhibit_delay(requested)
        bus.reload_logind_conf()
        delay = _RELOAD_BACKOFF
        for attempt in range(1, _RELOAD_STEPS + 1):
            current = bus.current_inhibit_delay()
            if requested <= current:
                return
            if attempt < _RELOAD_STEPS:
                klog.v(3).info_s(
                    "InhibitDelayMaxSec still less than requested, retrying",
                    attempt=attempt,
                    current=format_duration(current),
                    requested=format_duration(requested),
                )
                wait.sleep(ctx, delay, self._clock)
                delay *= 2
        raise TimeoutError(
            f"node shutdown manager was timed out after {_RELOAD_STEPS} attempts waiting for logind "
            f"InhibitDelayMaxSec to update to {format_duration(requested)} (ShutdownGracePeriod), "
            f"current value is {format_duration(current)}"
        )

    def _watch(self, ctx: golang.Context, events: golang.Channel[bool]) -> None:
        """Handle shutdown events until the bus is gone or ctx ends."""
        while True:
            event = golang.select(ctx.done(), events).took(events)
            if event is None:
                return
            if not event.ok:
                klog.error_s(None, "Ended to watching the node for shutdown events")
                return
            with contain("Failed to handle the shutdown event", ctx):
                self._handle_event(ctx, event.value)
            if not event.value and self._inhibit_lock is None:
                # DIVERGES (safer): if the manager cannot take a lock again after a canceled shutdown, it reconnects to
                # the system bus.
                # Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go, (*managerImpl).start: the Go kubelet
                # continues without a lock.
                # Why: without a lock the next shutdown does not wait for the pods to terminate.
                # Test: nodeshutdown_manager_test.py:test_called_off_without_a_new_lock
                return

    def _handle_event(self, ctx: golang.Context, is_shutting_down: bool) -> None:
        kind, noun = ("shutdown", "event") if is_shutting_down else ("cancelled", "cancellation")
        klog.v(1).info_s("Shutdown manager detected new shutdown event", event=kind)
        # An error here must not delay the pods' termination, because logind sends the event only once.
        with contain("Failed to record the shutdown event", ctx):
            message = f"Shutdown manager detected shutdown {noun}"
            self._recorder.event(self._node_ref, v1.EVENT_TYPE_NORMAL, kubeletevents.NODE_SHUTDOWN, message)
        with self._node_shutting_down_mutex:
            self._node_shutting_down_now = is_shutting_down
        try:
            if is_shutting_down:
                # The node should be reported as not ready while its pods are still terminating.
                with contain("Failed to report that the node is shutting down", ctx):
                    golang.go(self._report_not_ready, ctx, name="node-shutdown-status")
                self._process_shutdown_event()
            elif self._dbus_con is not None:
                self._acquire_inhibit_lock(self._dbus_con)
        except Exception as err:
            # After any error the manager must still handle the next shutdown.
            klog.error_s(err, "Failed to handle the shutdown event", event=kind)

    def _report_not_ready(self, ctx: golang.Context) -> None:
        try:
            self._sync_node_status(ctx)
        except golang.ContextError:
            pass  # The kubelet itself is stopping.
        except Exception as err:
            # The next sync of the node's status tries again, and pods must terminate in time anyway.
            klog.error_s(err, "Failed to report that the node is shutting down")

    def _acquire_inhibit_lock(self, bus: DBusInhibiter) -> None:
        """Take a new lock, and keep the old one if that fails. Raise LockRefusedError, and the errors of the bus."""
        lock = bus.inhibit_shutdown()
        if lock is None:
            raise LockRefusedError
        self._release_inhibit_lock()
        self._inhibit_lock = lock

    def _release_inhibit_lock(self) -> None:
        """Release the lock, if there is one.

        DIVERGES (fault of Go): the lock that delays shutdowns is released once.
        Go: pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go, (*managerImpl).acquireInhibitLock: the Go kubelet
        closes the descriptor of the old lock although the shutdown has already closed it.
        Why: the number of the descriptor may belong to another open file by then.
        Test: nodeshutdown_manager_test.py:test_lock_is_released_once
        """
        lock, self._inhibit_lock = self._inhibit_lock, None
        if lock is None or self._dbus_con is None:
            return
        try:
            self._dbus_con.release_inhibit_lock(lock)
        except Exception as err:
            # The lock delays only the shutdown, and only for a limited time.
            klog.error_s(err, "Failed to release the inhibit lock")

    def _disconnect(self) -> None:
        if self._dbus_con is not None:
            self._dbus_con.close()

    def _process_shutdown_event(self) -> None:
        klog.v(1).info_s("Shutdown manager processing shutdown event")
        start_time = self._clock.now()
        try:
            active_pods = self._get_pods()
            self._remember(storage.State(start_time))
            try:
                self._pod_manager.kill_pods(active_pods)
            finally:
                self._remember(storage.State(start_time, self._clock.now()))
        finally:
            self._release_inhibit_lock()
            klog.v(1).info_s("Shutdown manager completed processing shutdown event, node will shutdown shortly")

    def _remember(self, state: storage.State) -> None:
        if not self._enable_metrics:
            return
        try:
            self._storage.store(state)
        except OSError as err:
            klog.error_s(err, "Failed to store graceful shutdown state")
        metrics.GRACEFUL_SHUTDOWN_START_TIME.set(storage.timestamp(state.start_time))
        metrics.GRACEFUL_SHUTDOWN_END_TIME.set(storage.timestamp(state.end_time))

    def _set_metrics(self) -> None:
        """Set the metrics from the last shutdown, which was before this start."""
        if not self._enable_metrics:
            return
        try:
            state = self._storage.load()
        except (OSError, ValueError) as err:
            klog.error_s(err, "Failed to load graceful shutdown state")
            return
        for gauge, moment in (
            (metrics.GRACEFUL_SHUTDOWN_START_TIME, state.start_time),
            (metrics.GRACEFUL_SHUTDOWN_END_TIME, state.end_time),
        ):
            if moment != storage.ZERO_TIME:
                gauge.set(storage.timestamp(moment))


def new_manager(conf: Config) -> Manager:
    """Return a manager, which does nothing if no grace period is configured."""
    if not features.feature_gate.enabled(features.GRACEFUL_NODE_SHUTDOWN):
        return ManagerStub()
    pod_manager = PodManager(conf)
    if not pod_manager.shutdown_grace_period_by_pod_priority:
        return ManagerStub()
    klog.info_s(
        "Creating node shutdown manager",
        shutdownGracePeriodRequested=format_duration(conf.shutdown_grace_period_requested),
        shutdownGracePeriodCriticalPods=format_duration(conf.shutdown_grace_period_critical_pods),
        shutdownGracePeriodByPodPriority=[
            f"{period.priority}: {period.shutdown_grace_period_seconds}s"
            for period in pod_manager.shutdown_grace_period_by_pod_priority
        ],
    )
    return ManagerImpl(conf, pod_manager)
