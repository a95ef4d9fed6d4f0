"""Test graceful node shutdowns."""

from __future__ import annotations

import datetime
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from framework.waiting import wait_for, wait_for_end_of_threads

from kubelet import lifecycle, metrics, nodeshutdown
from kubelet.apis.config import types as kubeletconfig
from kubelet.nodeshutdown import nodeshutdown_manager, testing
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang import testing as golangtesting

CRITICAL = 2_000_000_000
NODE = v1.ObjectReference(kind="Node", name="n")
MESSAGE = "Pod was terminated in response to imminent node shutdown."
Period = kubeletconfig.ShutdownGracePeriodByPodPriority


def make_pod(name: str, priority: int | None = None, grace: int | None = None, phase: str = "Running") -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(name=name, namespace="ns", uid=types.UID(name)),
        spec=v1.PodSpec(priority=priority, termination_grace_period_seconds=grace),
        status=v1.PodStatus(phase=phase),
    )


class World:
    """Run a manager on a fake bus. Its pods and their volumes end immediately, or when `let_end` says so."""

    def __init__(self, directory: Path, bus: testing.FakeDBus, pods: Sequence[v1.Pod] = ()) -> None:
        self.bus = bus
        self.buses = [bus]
        self.clock = clocktesting.FakeClock()
        self.recorder = FakeRecorder(50)
        self.kills: golang.Channel[tuple[str, int | None]] = golang.Channel(50)
        self.synced: golang.Channel[None] = golang.Channel(50)
        self.statuses: dict[str, v1.PodStatus] = {}
        self.pods = list(pods)
        self.let_end = threading.Event()
        self.let_end.set()
        self.kill_err: Exception | None = None
        self.unmounts: golang.Channel[list[str]] = golang.Channel(50)
        self.unmount_stuck = False
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.conf = nodeshutdown.Config(
            volume_manager=self,
            recorder=self.recorder,
            node_ref=NODE,
            get_pods_func=lambda: self.pods,
            kill_pod_func=self.kill,
            sync_node_status_func=lambda ctx: self.synced.send(None),
            shutdown_grace_period_requested=30.0,
            shutdown_grace_period_critical_pods=10.0,
            shutdown_grace_period_by_pod_priority=[],
            state_directory=directory,
            clock=self.clock,
            system_dbus=self.connect,
        )

    def connect(self) -> testing.FakeDBus:
        return self.buses.pop(0)

    def kill(
        self, pod: v1.Pod, evicted: bool, grace: int | None, set_status: Callable[[v1.PodStatus], None] | None
    ) -> None:
        assert not evicted and set_status is not None
        status = v1.PodStatus(phase=pod.status.phase)
        set_status(status)
        self.statuses[pod.metadata.name] = status
        self.kills.send((pod.metadata.name, grace))
        self.let_end.wait(30)
        if self.kill_err is not None:
            raise self.kill_err

    def wait_for_all_pods_unmount(self, ctx: golang.Context, pods: Sequence[v1.Pod], /) -> None:
        self.unmounts.send([pod.metadata.name for pod in pods])
        if self.unmount_stuck:
            ctx.wait(30)
            raise TimeoutError("mounted volumes=[v]")

    def start(self) -> nodeshutdown.Manager:
        manager = nodeshutdown.new_manager(self.conf)
        manager.start(self.ctx)
        return manager

    def killed(self, count: int) -> dict[str, int | None]:
        found = {}
        for _ in range(count):
            item, ok = self.kills.recv(timeout=30)
            assert ok and item is not None, "no other pod is killed"
            found[item[0]] = item[1]
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, testing.FakeDBus())
    yield made
    made.let_end.set()
    made.cancel()
    wait_for_end_of_threads("node-shutdown", "shutdown-")


def admits(manager: nodeshutdown.Manager) -> bool:
    return manager.admit(lifecycle.PodAdmitAttributes(make_pod("new"))).admit


NORMAL, URGENT = make_pod("normal"), make_pod("urgent", CRITICAL)
SHORT, URGENT_SHORT = make_pod("short", 0, 2), make_pod("urgent-short", CRITICAL, 2)
LONG = make_pod("long", 0, 1000)


@pytest.mark.parametrize(
    ("pods", "requested", "critical", "expected"),
    [
        ([NORMAL, URGENT], 30, 10, {"normal": 20, "urgent": 10}),
        ([NORMAL, URGENT, SHORT, URGENT_SHORT], 30, 10, {"normal": 20, "urgent": 10, "short": 2, "urgent-short": 2}),
        ([LONG], 30, 10, {"long": 20}),
        ([NORMAL, URGENT], 30, 0, {"normal": 30, "urgent": 0}),
        ([NORMAL, URGENT], 5, 5, {"normal": 0, "urgent": 5}),
        ([], 30, 10, {}),
    ],
)
def test_grace_periods(
    world: World, pods: list[v1.Pod], requested: float, critical: float, expected: dict[str, int]
) -> None:
    world.pods = pods
    world.conf.shutdown_grace_period_requested = requested
    world.conf.shutdown_grace_period_critical_pods = critical
    # The manager does not wait for a group without a grace period.
    manager = world.start()
    assert world.bus.locks == {1} and not world.bus.overrides
    world.bus.shut_down()
    assert world.killed(len(expected)) == expected
    wait_for("the lock is released", lambda: world.bus.locks == set())
    assert not admits(manager) and str(manager.shutdown_status()) == "node is shutting down"
    assert world.synced.recv(timeout=30)[1], "the node's status says so"
    assert world.recorder.drain() == ["Normal Shutdown Shutdown manager detected shutdown event"]


def test_statuses(world: World) -> None:
    world.pods = [make_pod(phase.lower(), phase=phase) for phase in ("Running", "Failed", "Succeeded")]
    world.start()
    world.bus.shut_down()
    world.killed(3)
    assert {name: status.phase for name, status in world.statuses.items()} == {
        "running": "Failed",
        "failed": "Failed",
        "succeeded": "Succeeded",
    }
    status = world.statuses["running"]
    assert (status.reason, status.message) == ("Terminated", MESSAGE)
    (condition,) = status.conditions
    assert (condition.type, condition.status) == ("DisruptionTarget", "True")
    assert (condition.reason, condition.message) == ("TerminationByKubelet", MESSAGE)


def test_critical_pods_go_after_the_others_and_their_volumes(world: World) -> None:
    world.pods = [URGENT, NORMAL]
    world.let_end.clear()
    world.start()
    world.bus.shut_down()
    assert world.killed(1) == {"normal": 20}
    assert world.kills.recv(timeout=0.05) == (None, False), "the critical pod waits"
    world.let_end.set()
    assert world.unmounts.recv(timeout=30)[0] == ["normal"]
    assert world.killed(1) == {"urgent": 10}


@pytest.mark.parametrize("stuck", ["pod", "volume"])
def test_what_does_not_end_in_time_is_not_waited_for(world: World, stuck: str) -> None:
    world.pods = [NORMAL, URGENT]
    world.unmount_stuck = stuck == "volume"
    if stuck == "pod":
        world.let_end.clear()
    world.start()
    world.bus.shut_down()
    world.killed(1)
    world.clock.wait_for_waiters()
    world.clock.step(19)
    assert world.kills.recv(timeout=0.05) == (None, False)
    world.clock.step(1)
    assert world.killed(1) == {"urgent": 10}
    assert world.bus.locks == {1}
    world.clock.wait_for_waiters()
    world.clock.step(10)
    wait_for("the lock is released", lambda: not world.bus.locks)


def test_pod_that_cannot_be_killed_holds_nobody_up(world: World) -> None:
    world.pods = [NORMAL, URGENT]
    world.kill_err = RuntimeError("runtime is away")
    world.start()
    world.bus.shut_down()
    assert set(world.killed(2)) == {"normal", "urgent"}
    wait_for("the lock is released", lambda: not world.bus.locks)


@pytest.mark.parametrize("fault", [golang.Canceled(), ConnectionError("refused")], ids=["end", "no server"])
def test_status_that_cannot_be_reported_holds_nobody_up(world: World, fault: Exception) -> None:
    def fail(ctx: golang.Context) -> None:
        world.synced.send(None)
        raise fault

    world.pods, world.conf.sync_node_status_func = [NORMAL], fail
    world.start()
    world.bus.shut_down()
    assert world.synced.recv(timeout=30)[1]
    assert world.killed(1) == {"normal": 20}


def test_called_off(world: World) -> None:
    manager = world.start()
    assert admits(manager) and manager.shutdown_status() is None
    world.bus.shut_down()
    wait_for("pods are refused and the lock is released", lambda: not admits(manager) and not world.bus.locks)
    world.bus.call_off()
    wait_for("pods are admitted and a new lock is taken", lambda: admits(manager) and world.bus.locks == {2})
    assert world.recorder.drain()[-1] == "Normal Shutdown Shutdown manager detected shutdown cancellation"


def test_called_off_without_a_new_lock(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    second = testing.FakeDBus(before=world.bus)
    world.buses.append(second)
    manager = world.start()
    world.bus.shut_down()
    wait_for("pods are refused and the lock is released", lambda: not admits(manager) and not world.bus.locks)
    monkeypatch.setattr(world.bus, "inhibit_shutdown", raising(OSError("no answer")))
    world.bus.call_off()
    world.clock.wait_for_waiters()
    world.clock.step(1)
    wait_for("a lock is taken on the new connection", lambda: second.locks == {101})
    assert admits(manager)


def test_rejection(world: World) -> None:
    manager = world.start()
    world.bus.shut_down()
    wait_for("the shutdown is noticed", lambda: manager.shutdown_status() is not None)
    result = manager.admit(lifecycle.PodAdmitAttributes(make_pod("new")))
    assert (result.reason, result.message) == ("NodeShutdown", "Pod was rejected as the node is shutting down.")


def test_delay_is_overridden(world: World) -> None:
    world.bus.inhibit_delay, world.bus.delay_after_override = 5, 30
    world.start()
    assert (world.bus.overrides, world.bus.reloads, world.bus.locks) == ([30], 1, {1})


@pytest.mark.parametrize("delay", [5, 0])
def test_delay_that_cannot_be_overridden(world: World, delay: int) -> None:
    world.bus.inhibit_delay = world.bus.delay_after_override = delay
    starter = golang.go(world.start, name="node-shutdown-test")
    for _ in range(4):
        world.clock.wait_for_waiters()
        world.clock.step(1)
    starter.join(30)
    assert world.recorder.drain() == [
        "Warning Shutdown Graceful node shutdown is configured but not active: node shutdown manager was timed out "
        "after 5 attempts waiting for logind InhibitDelayMaxSec to update to 30s (ShutdownGracePeriod), "
        f"current value is {delay}s"
    ]
    assert not world.bus.locks and world.bus.closed


def test_no_bus(world: World) -> None:
    def fail() -> testing.FakeDBus:
        raise OSError("no such bus")

    world.conf.system_dbus = fail
    manager = world.start()
    assert admits(manager) and manager.shutdown_status() is None
    (event,) = world.recorder.drain()
    assert event == "Warning Shutdown Graceful node shutdown is configured but not active: no such bus"


def test_bus_that_goes_away_is_joined_again(world: World) -> None:
    broken, second = testing.FakeDBus(before=world.bus), testing.FakeDBus(before=world.bus)
    broken.err = OSError("not up yet")
    world.buses += [broken, second]
    manager = world.start()
    world.bus.events.close()
    for _ in range(2):
        world.clock.wait_for_waiters()
        world.clock.step(1)
    wait_for("a lock is taken on the new connection", lambda: second.locks == {101})
    assert world.bus.closed and broken.closed
    second.shut_down()
    wait_for("pods are refused", lambda: not admits(manager))


def test_shutdown_that_is_called_off_while_the_bus_is_away(world: World) -> None:
    refused, second = testing.FakeDBus(before=world.bus), testing.FakeDBus(before=world.bus)
    refused.in_progress = True
    world.buses += [refused, second]
    manager = world.start()
    world.bus.shut_down()
    wait_for("pods are refused and the lock is released", lambda: not admits(manager) and not world.bus.locks)
    world.bus.events.close()
    world.clock.wait_for_waiters()
    world.clock.step(1)
    refused.events.close()
    world.clock.wait_for_waiters()
    assert not admits(manager), "it goes on"
    world.clock.step(1)
    wait_for("pods are admitted and a new lock is taken", lambda: admits(manager) and len(second.locks) == 1)


def test_shutdown_that_begins_while_the_bus_is_away(world: World) -> None:
    second = testing.FakeDBus(before=world.bus)
    second.in_progress = True
    world.buses.append(second)
    world.pods = [NORMAL]
    world.let_end.clear()
    manager = world.start()
    world.bus.events.close()
    world.clock.wait_for_waiters()
    world.clock.step(1)
    assert world.killed(1) == {"normal": 20}
    assert not admits(manager) and world.bus.locks == {1}, "held up until the pods have ended"
    world.let_end.set()
    wait_for("the lock is released", lambda: not world.bus.locks)
    second.in_progress = False
    second.call_off()
    wait_for("pods are admitted and a new lock is taken", lambda: admits(manager) and len(second.locks) == 1)


@pytest.mark.parametrize("call", ["current_inhibit_delay", "monitor_shutdown"])
def test_bus_that_cannot_be_joined_again_leaves_the_lock(
    world: World, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    broken = testing.FakeDBus(before=world.bus)
    monkeypatch.setattr(broken, call, raising(OSError("not up yet")))
    world.buses.append(broken)
    world.start()
    world.bus.events.close()
    world.clock.wait_for_waiters()
    world.clock.step(1)
    wait_for("the broken connection is closed", lambda: broken.closed)
    world.clock.wait_for_waiters()
    assert world.bus.locks == {1}


def test_shutdown_that_begins_as_the_lock_is_taken(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listening = threading.Event()

    def monitor() -> golang.Channel[bool]:
        listening.set()
        return world.bus.events

    def inhibit() -> int | None:
        if listening.is_set():
            world.bus.shut_down()  # The bus signals its subscribers.
        return 1

    monkeypatch.setattr(world.bus, "monitor_shutdown", monitor)
    monkeypatch.setattr(world.bus, "inhibit_shutdown", inhibit)
    manager = world.start()
    wait_for("pods are refused", lambda: not admits(manager))


def test_lock_is_released_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []
    monkeypatch.setattr(world.bus, "release_inhibit_lock", released.append)
    manager = world.start()
    world.bus.shut_down()
    wait_for("pods are refused and the lock is released once", lambda: not admits(manager) and released == [1])
    world.bus.call_off()
    wait_for("pods are admitted and a new lock is taken", lambda: admits(manager) and world.bus.taken == 2)
    world.cancel()
    wait_for("the connection is closed", lambda: world.bus.closed)
    assert released == [1, 2]


def test_start_during_a_shutdown(world: World) -> None:
    world.bus.in_progress = True
    assert admits(world.start()) and world.bus.closed
    assert world.recorder.drain() == [
        "Warning Shutdown Graceful node shutdown is configured but not active: a shutdown is in progress and can no "
        "longer be delayed"
    ]


def test_end_of_the_kubelet_lets_go(world: World) -> None:
    world.start()
    world.cancel()
    wait_for("the connection is closed and the lock is released", lambda: world.bus.closed and not world.bus.locks)


def test_nothing_configured(world: World) -> None:
    world.conf.shutdown_grace_period_requested = world.conf.shutdown_grace_period_critical_pods = 0
    assert isinstance(world.start(), nodeshutdown.ManagerStub) and world.bus.taken == 0
    world.conf.shutdown_grace_period_requested = 30
    with (
        set_feature_gate_during_test(
            features.feature_gate, features.GRACEFUL_NODE_SHUTDOWN_BASED_ON_POD_PRIORITY, False
        ),
        set_feature_gate_during_test(features.feature_gate, features.GRACEFUL_NODE_SHUTDOWN, False),
    ):
        manager = world.start()
    assert isinstance(manager, nodeshutdown.ManagerStub)
    assert admits(manager) and manager.shutdown_status() is None


def test_state_file(world: World, tmp_path: Path) -> None:
    world.pods = [NORMAL]
    world.let_end.clear()
    world.start()
    world.bus.shut_down()
    world.killed(1)
    path = tmp_path / "graceful_node_shutdown_state"
    assert json.loads(path.read_bytes()) == {"startTime": "2020-01-01T00:00:00Z", "endTime": "0001-01-01T00:00:00Z"}
    assert path.stat().st_mode & 0o777 == 0o644
    world.clock.step(3)
    world.let_end.set()
    wait_for("the end of the shutdown is written", lambda: b"2020-01-01T00:00:03Z" in path.read_bytes())
    began = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC).timestamp()
    assert metricstesting.value(metrics.GRACEFUL_SHUTDOWN_START_TIME) == began
    wait_for(
        "the end of the shutdown is in the metrics",
        lambda: metricstesting.value(metrics.GRACEFUL_SHUTDOWN_END_TIME) == began + 3,
    )
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("requested", "critical", "expected"),
    [
        (
            300,
            120,
            [
                Period(priority=0, shutdown_grace_period_seconds=180),
                Period(priority=CRITICAL, shutdown_grace_period_seconds=120),
            ],
        ),
        (100, 0, [Period(priority=0, shutdown_grace_period_seconds=100), Period(priority=CRITICAL)]),
        (0, 0, []),
        (1, 100, []),
    ],
)
def test_migrate_config(requested: float, critical: float, expected: list[Period]) -> None:
    assert nodeshutdown_manager.migrate_config(requested, critical) == expected


def test_group_by_priority() -> None:
    periods = nodeshutdown_manager.migrate_config(300, 120)
    pods = [make_pod("normal"), make_pod("highest-of-users", 1_000_000_000), make_pod("critical", CRITICAL)]
    groups = nodeshutdown_manager.group_by_priority(periods, pods)
    assert [(g.grace_period, [p.metadata.name for p in g.pods]) for g in groups] == [
        (180, ["normal", "highest-of-users"]),
        (120, ["critical"]),
    ]
    periods = [Period(priority=i, shutdown_grace_period_seconds=i * 10) for i in (1, 2, 3, 4)]
    groups = nodeshutdown_manager.group_by_priority(periods, [make_pod(str(i), i) for i in range(6)])
    assert [[p.metadata.name for p in g.pods] for g in groups] == [["0", "1"], ["2"], ["3"], ["4", "5"]]


def test_groups_of_priorities_in_any_order(world: World) -> None:
    world.conf.shutdown_grace_period_by_pod_priority = [
        Period(priority=10, shutdown_grace_period_seconds=3),
        Period(priority=0, shutdown_grace_period_seconds=4),
    ]
    world.pods = [make_pod("high", 20), make_pod("low")]
    world.let_end.clear()
    world.start()
    world.bus.shut_down()
    assert world.killed(1) == {"low": 4}
    world.let_end.set()
    assert world.killed(1) == {"high": 3}


@pytest.mark.parametrize("missing", ["node-shutdown-status", "shutdown-group-", "shutdown-kill-", "shutdown-"])
def test_without_threads_all_pods_are_ended(world: World, missing: str) -> None:
    world.pods = [NORMAL, URGENT, make_pod("another")]
    world.start()
    with golangtesting.out_of_threads(missing) as refused:
        world.bus.shut_down()
        assert set(world.killed(3)) == {"normal", "urgent", "another"}
        wait_for("the lock is released", lambda: not world.bus.locks)
    assert refused


@failures
def test_event_that_cannot_be_handled_leaves_the_next(world: World, err: Exception) -> None:
    world.conf.get_pods_func = failing_once(lambda: [NORMAL], err)
    world.start()
    world.bus.shut_down()
    world.bus.shut_down()
    assert world.killed(1) == {"normal": 20}


@failures
def test_shutdown_that_cannot_be_recorded_ends_the_pods(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    world.pods = [NORMAL]
    monkeypatch.setattr(world.recorder, "event", failing_once(world.recorder.event, err))
    manager = world.start()
    world.bus.shut_down()
    assert world.killed(1) == {"normal": 20}
    assert not admits(manager)
