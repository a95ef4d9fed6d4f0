"""Test the generic PLEG.

Go: pkg/kubelet/pleg/generic_test.go
"""

from __future__ import annotations

import dataclasses
import datetime
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import cast
from unittest import mock

import pytest
from framework.waiting import wait_for, wait_for_end_of_threads

from kubelet import container as kubecontainer
from kubelet import metrics, pleg
from kubelet.container import testing as containertest
from kubelet.pleg import generic
from kubelet.pleg.testing import FakeRelistObserver
from pkg import features, golang
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.component_base.featuregate import testing as featuregatetesting
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang import testing as golangtesting

BAD = types.UID("bad")
POD_1 = types.UID("pod1")

RUNNING = kubecontainer.CONTAINER_STATE_RUNNING
EXITED = kubecontainer.CONTAINER_STATE_EXITED
UNKNOWN = kubecontainer.CONTAINER_STATE_UNKNOWN
CREATED = kubecontainer.CONTAINER_STATE_CREATED

# `DEADLINE` is the time, in seconds, that a test waits for an event. Only a failing test waits this long.
DEADLINE = 30.0


class Runtime(containertest.FakeRuntime):
    """Fake a runtime with one status per pod; a status in `gates` is not returned before its channel is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, kubecontainer.PodStatus | Exception] = {}
        self.gates: dict[str, golang.Channel[None]] = {}
        self.inspected: list[str] = []
        self.listing: Callable[[], None] = lambda: None

    def set_pods(self, *pods: kubecontainer.Pod) -> None:
        self.all_pod_list = [containertest.FakePod(pod) for pod in pods]

    def get_pods(self, ctx: golang.Context, all: bool) -> list[kubecontainer.Pod]:
        self.listing()
        return super().get_pods(ctx, all)

    def get_pod_status(self, ctx: golang.Context, pod: kubecontainer.Pod) -> kubecontainer.PodStatus:
        self.inspected.append(pod.id)
        if pod.id in self.gates:
            golang.select(self.gates[pod.id], ctx.done())
        status = self.statuses.get(pod.id) or kubecontainer.PodStatus(id=pod.id)
        if isinstance(status, Exception):
            raise status
        return dataclasses.replace(status)


class PLEG(pleg.GenericPLEG):
    """Apply `inspect_limit` only to pods in `gates`, so that a slow machine does not make other inspections late."""

    def _inspect(self, pod: kubecontainer.Pod) -> generic._Inspection | None:
        limit = self.inspect_limit
        if pod.id not in cast(Runtime, self._runtime).gates:
            self.inspect_limit = DEADLINE
        try:
            return super()._inspect(pod)
        finally:
            self.inspect_limit = limit


class Harness:
    def __init__(self, channel_size: int = 100, period: float = 3600.0) -> None:
        self.runtime = Runtime()
        self.clock = testingclock.FakeClock()
        self.cache = kubecontainer.CacheImpl()
        self.channel: golang.Channel[pleg.PodLifecycleEvent] = golang.Channel(channel_size)
        self.observer = FakeRelistObserver()
        self.pleg = PLEG(
            self.runtime, self.channel, pleg.RelistDuration(period, 180.0), self.cache, self.clock, self.observer
        )

    def events(self) -> list[tuple[str, str, str | None]]:
        found = []
        while len(self.channel):
            event, _ = self.channel.recv()
            assert event is not None
            found.append((event.id, event.type.value, event.data))
        return sorted(found, key=str)

    def relist(self) -> list[tuple[str, str, str | None]]:
        self.clock.step(1)
        for fake in self.runtime.all_pod_list:
            fake.pod.timestamp = self.clock.now()
        self.pleg.relist()
        return self.events()


@pytest.fixture
def h() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.pleg.stop()


def container(id: str, state: kubecontainer.State) -> kubecontainer.Container:
    return kubecontainer.Container(id=kubecontainer.ContainerID("fooRuntime", id), name=id, state=state)


def make_pod(
    id: str,
    containers: Sequence[kubecontainer.Container] = (),
    sandboxes: Sequence[kubecontainer.Container] = (),
) -> kubecontainer.Pod:
    return kubecontainer.Pod(
        id=types.UID(id), name=f"name-{id}", namespace="ns", containers=list(containers), sandboxes=list(sandboxes)
    )


def test_observer_is_told_of_relists(h: Harness) -> None:
    h.relist()
    h.runtime.err = RuntimeError("no answer")
    h.relist()
    assert h.observer.failed == [False, True]


@pytest.mark.parametrize("as_sandboxes", [False, True], ids=["containers", "sandboxes"])
def test_relisting(h: Harness, as_sandboxes: bool) -> None:
    def pod(id: str, *containers: kubecontainer.Container) -> kubecontainer.Pod:
        return make_pod(id, (), containers) if as_sandboxes else make_pod(id, containers)

    h.runtime.set_pods(
        pod("1234", container("c1", EXITED), container("c2", RUNNING), container("c3", UNKNOWN)),
        pod("4567", container("c1", EXITED)),
    )
    assert h.relist() == [
        ("1234", "ContainerDied", "c1"),
        ("1234", "ContainerStarted", "c2"),
        ("4567", "ContainerDied", "c1"),
    ]
    h.runtime.inspected.clear()
    assert h.relist() == []
    assert h.runtime.inspected == []

    h.runtime.set_pods(
        pod("1234", container("c2", EXITED), container("c3", RUNNING)), pod("4567", container("c4", RUNNING))
    )
    assert h.relist() == [
        ("1234", "ContainerDied", "c2"),
        ("1234", "ContainerRemoved", "c1"),
        ("1234", "ContainerStarted", "c3"),
        ("4567", "ContainerRemoved", "c1"),
        ("4567", "ContainerStarted", "c4"),
    ]


def test_event_channel_full() -> None:
    h = Harness(channel_size=4)
    h.runtime.set_pods(make_pod("1234", [container(f"c{i}", RUNNING) for i in range(6)]))
    with metricstesting.moves(metrics.PLEG_DISCARD_EVENTS, 2):
        assert len(h.relist()) == 4
    h.pleg.stop()


def test_pod_that_was_not_told_of_is_synced_with_the_next_relist() -> None:
    h = Harness(channel_size=4)
    h.runtime.set_pods(
        make_pod("large", [container(f"c{i}", RUNNING) for i in range(6)]), make_pod("other", [container("c", RUNNING)])
    )
    assert [pod for pod, _, _ in h.relist()] == ["large"] * 4
    assert sorted(h.relist()) == [("large", "PodSync", None), ("other", "PodSync", None)]
    assert h.relist() == []
    h.pleg.stop()


@pytest.mark.parametrize("relists", [1, 3])
def test_detecting_container_deaths(h: Harness, relists: int) -> None:
    h.runtime.set_pods(make_pod("1234", [container("c1", RUNNING), container("c2", RUNNING), container("c3", EXITED)]))
    for _ in range(relists):
        h.relist()
    h.runtime.set_pods(make_pod("1234", [container("c1", RUNNING)]))
    assert h.relist() == [
        ("1234", "ContainerDied", "c2"),
        ("1234", "ContainerRemoved", "c2"),
        ("1234", "ContainerRemoved", "c3"),
    ]
    h.runtime.set_pods()
    assert h.relist() == [("1234", "ContainerDied", "c1"), ("1234", "ContainerRemoved", "c1")]


def test_relist_with_cache(h: Harness) -> None:
    pods = [make_pod(f"test-pod-{i}", [container(f"c{i}", RUNNING)]) for i in range(2)]
    h.runtime.set_pods(*pods)
    error = RuntimeError("unable to get status")
    h.runtime.statuses[pods[1].id] = error

    assert h.relist() == [("test-pod-0", "ContainerStarted", "c0")]
    assert h.cache.get(pods[0].id) == kubecontainer.PodStatus(id=pods[0].id)
    with pytest.raises(RuntimeError) as caught:
        h.cache.get(pods[1].id)
    assert caught.value is error

    del h.runtime.statuses[pods[1].id]
    assert h.relist() == [("test-pod-1", "ContainerStarted", "c1")]
    assert h.cache.get(pods[1].id) == kubecontainer.PodStatus(id=pods[1].id)
    assert h.runtime.inspected == ["test-pod-0", "test-pod-1", "test-pod-1"]


def test_remove_cache_entry(h: Harness) -> None:
    h.runtime.set_pods(make_pod("gone", [container("c", RUNNING)]))
    h.relist()
    assert len(h.cache) == 1
    h.runtime.set_pods()
    h.relist()
    assert len(h.cache) == 0
    assert list(h.pleg.pod_records) == []


def healthy(generator: pleg.GenericPLEG) -> str:
    try:
        generator.healthy()
    except pleg.PLEGUnhealthyError as err:
        return str(err)
    return ""


def test_healthy(h: Harness) -> None:
    assert healthy(h.pleg) == "pleg has yet to be successful"
    h.clock.step(600)
    assert healthy(h.pleg) == "pleg has yet to be successful"
    h.pleg.relist()
    h.clock.step(60)
    assert healthy(h.pleg) == ""
    h.clock.step(180)
    assert healthy(h.pleg) == "pleg was last seen active 240.000s ago; threshold is 180s"


def test_healthy_when_the_clock_is_set_back(h: Harness) -> None:
    h.pleg.relist()
    h.clock.set_time(h.clock.now() - datetime.timedelta(hours=1))
    h.clock.step(240)
    assert healthy(h.pleg) == "pleg was last seen active 240.000s ago; threshold is 180s"


def test_nothing_old_is_new_when_the_clock_is_set_back(h: Harness) -> None:
    """A worker that has just synced waits for the next relist."""
    h.pleg.relist()
    h.clock.set_time(h.clock.now() - datetime.timedelta(hours=1))
    h.clock.step(1)
    synced = h.clock.steady()
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        h.cache.get_newer_than(POD_1, synced, ctx)
    h.clock.step(1)
    h.pleg.relist()
    assert h.cache.get_newer_than(POD_1, synced) == kubecontainer.PodStatus(id=POD_1)


def test_healthy_names_the_failure(h: Harness) -> None:
    h.pleg.relist()
    h.runtime.err = RuntimeError("no containerd")
    h.clock.step(200)
    h.pleg.relist()
    assert healthy(h.pleg).endswith("; the last relist failed: no containerd")
    h.runtime.err = None
    h.pleg.relist()
    assert healthy(h.pleg) == ""


def test_healthy_names_the_hanging_call(h: Harness) -> None:
    called = threading.Event()
    gate: golang.Channel[None] = golang.Channel()

    def listing() -> None:
        called.set()
        gate.recv()

    h.runtime.listing = listing
    since = h.clock.now().isoformat(timespec="seconds")
    thread = golang.go(h.pleg.relist, name="hanging-relist")
    assert called.wait(DEADLINE)
    h.clock.step(200)
    assert healthy(h.pleg) == (
        f"pleg has yet to be successful; GetPods of all sandboxes and containers has not returned since {since}"
    )
    gate.close()
    thread.join(DEADLINE)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("requested", "error", "deleted", "reinspect_after", "events"),
    [
        pytest.param(True, None, False, False, [("test-pod", "PodSync", None)], id="requested, success"),
        pytest.param(True, RuntimeError("fail"), False, True, [], id="requested, failure"),
        pytest.param(False, None, False, False, [], id="not requested"),
        pytest.param(True, None, True, False, [("test-pod", "PodSync", None)], id="pod deleted"),
    ],
)
def test_reinspect(
    h: Harness,
    requested: bool,
    error: Exception | None,
    deleted: bool,
    reinspect_after: bool,
    events: list[tuple[str, str, str | None]],
) -> None:
    pod = make_pod("test-pod")
    h.runtime.set_pods(pod)
    h.relist()
    if error is not None:
        h.runtime.statuses[pod.id] = error
    if requested:
        h.pleg.request_reinspect(pod.id)
    if deleted:
        h.runtime.set_pods()

    assert h.relist() == events
    assert (pod.id in h.pleg._pods_to_reinspect) is reinspect_after
    assert h.runtime.inspected == ([pod.id] if requested and not deleted else [])


@pytest.mark.parametrize("ips", [["192.168.1.5"], ["192.168.1.5/24", "2000::"]], ids=str)
def test_relist_ip_change(h: Harness, ips: list[str]) -> None:
    h.runtime.set_pods(make_pod("p", [container("c0", RUNNING)]))
    h.runtime.statuses["p"] = kubecontainer.PodStatus(id=types.UID("p"), ips=ips)
    h.relist()
    assert h.cache.get(types.UID("p")).ips == ips
    # A terminated pod keeps its addresses.
    h.runtime.set_pods(make_pod("p", [container("c0", EXITED)]))
    h.runtime.statuses["p"] = kubecontainer.PodStatus(id=types.UID("p"))
    h.relist()
    assert h.cache.get(types.UID("p")).ips == ips


def test_running_pod_and_container_count(h: Harness) -> None:
    h.runtime.set_pods(
        make_pod(
            "1234",
            [container("c1", RUNNING), container("c2", UNKNOWN), container("c3", UNKNOWN)],
            [container("s1", RUNNING), container("s2", RUNNING), container("s3", UNKNOWN)],
        ),
        make_pod("4567", [container("c1", EXITED)], [container("s4", RUNNING), container("s5", EXITED)]),
    )
    h.relist()

    def counts() -> dict[str, float]:
        states = ("running", "exited", "unknown")
        return {s: metricstesting.value(metrics.RUNNING_CONTAINER_COUNT.labels(s)) for s in states}

    assert counts() == {"running": 1, "exited": 1, "unknown": 2}
    assert metricstesting.value(metrics.RUNNING_POD_COUNT) == 2
    h.runtime.set_pods()
    h.relist()
    assert counts() == {"running": 0, "exited": 0, "unknown": 0}
    assert metricstesting.value(metrics.RUNNING_POD_COUNT) == 0


def test_call_that_returns_while_it_is_named(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [generic._Call("GetPods", "all sandboxes and containers", h.clock.now()), None]
    monkeypatch.setattr(generic.GenericPLEG, "_call", property(lambda _: looks.pop(0)), raising=False)
    assert "; GetPods of all sandboxes and containers has not returned since " in healthy(h.pleg)


# ---- A pod that hangs ----


def hang(h: Harness, id: str) -> golang.Channel[None]:
    h.pleg.inspect_limit = 0.01
    gate: golang.Channel[None] = golang.Channel()
    h.runtime.gates[id] = gate
    return gate


def get_newer_than(
    h: Harness, id: str, min_time: datetime.datetime
) -> tuple[golang.Channel[object], Callable[[], None]]:
    """Return a channel with the status or the error from get_newer_than, and a function that cancels the wait."""
    result: golang.Channel[object] = golang.Channel(1)
    ctx, cancel = golang.with_cancel(golang.background())

    def run() -> None:
        try:
            result.send(h.cache.get_newer_than(types.UID(id), min_time, ctx))
        except Exception as err:
            result.send(err)

    golang.go(run, name=f"get-newer-than-{id}")
    return result, cancel


def test_hanging_pod_stalls_only_itself(h: Harness) -> None:
    gate = hang(h, "bad")
    start = h.clock.now()
    h.runtime.set_pods(
        make_pod("a", [container("ca", RUNNING)]),
        make_pod("bad", [container("cb", RUNNING)], [container("sb", RUNNING)]),
        make_pod("z", [container("cz", RUNNING)]),
    )
    assert h.relist() == [("a", "ContainerStarted", "ca"), ("z", "ContainerStarted", "cz")]
    assert healthy(h.pleg) == ""

    # Later relists do not wait for the pod at all, and changes of other pods take effect.
    h.pleg.inspect_limit = DEADLINE
    h.runtime.set_pods(*(fake.pod for fake in h.runtime.all_pod_list[:2]))
    assert h.relist() == [("z", "ContainerDied", "cz"), ("z", "ContainerRemoved", "cz")]
    assert h.runtime.inspected == ["a", "bad", "z"]

    # The worker of the hanging pod waits; the workers of another pod and of an unknown pod do not.
    bad, _ = get_newer_than(h, "bad", start)
    other, _ = get_newer_than(h, "a", start)
    unknown, _ = get_newer_than(h, "unknown", start)
    assert other.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=types.UID("a"))
    assert unknown.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=types.UID("unknown"))
    assert bad.recv(0.05) == (None, False)

    # The next relist uses the late result.
    gate.close()
    wait_for("the late inspection has ended", lambda: h.pleg._late[BAD].finished(0))
    assert h.relist() == [("bad", "ContainerStarted", "cb"), ("bad", "ContainerStarted", "sb")]
    assert bad.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=BAD)
    assert h.runtime.inspected == ["a", "bad", "z"]
    assert h.relist() == []


def test_hanging_pod_that_changes_meanwhile(h: Harness) -> None:
    gate = hang(h, "bad")
    h.runtime.set_pods(make_pod("bad", [container("c1", RUNNING)]))
    h.relist()
    h.runtime.set_pods(make_pod("bad", [container("c1", EXITED)]))
    assert h.relist() == []
    h.runtime.gates.clear()
    gate.close()
    wait_for("the late inspection has ended", lambda: h.pleg._late[BAD].finished(0))
    # The PLEG first reports what the inspection saw, and then, after a new inspection, the change since.
    h.pleg.inspect_limit = DEADLINE
    with h.pleg._reinspect_lock:
        h.pleg._slow.clear()
    assert h.relist() == [("bad", "ContainerDied", "c1"), ("bad", "ContainerStarted", "c1")]


def test_hanging_pod_that_vanishes(h: Harness) -> None:
    gate = hang(h, "bad")
    h.runtime.set_pods(make_pod("bad", [container("c1", RUNNING)]))
    h.relist()
    h.runtime.set_pods()
    h.relist()
    gate.close()
    wait_for("the late inspection has ended", lambda: h.pleg._late[BAD].finished(0))
    assert h.relist() == [
        ("bad", "ContainerDied", "c1"),
        ("bad", "ContainerRemoved", "c1"),
        ("bad", "ContainerStarted", "c1"),
    ]
    assert list(h.pleg.pod_records) == []
    assert len(h.cache) == 0
    assert h.pleg._late == {}
    assert h.pleg._slow == set()


def test_hanging_pod_ends_in_an_error(h: Harness) -> None:
    gate = hang(h, "bad")
    start = h.clock.now()
    h.runtime.statuses["bad"] = RuntimeError("deadline exceeded")
    h.runtime.set_pods(make_pod("bad", [container("c1", RUNNING)]))
    h.relist()
    waiting, _ = get_newer_than(h, "bad", start)
    gate.close()
    wait_for("the late inspection has ended", lambda: h.pleg._late[BAD].finished(0))
    assert h.relist() == []
    assert str(waiting.recv(DEADLINE)[0]) == "deadline exceeded"
    # The PLEG inspects the pod again, on a thread that no relist waits for.
    wait_for("the pod is inspected again", lambda: h.runtime.inspected == ["bad", "bad"])


def test_stop_breaks_off_a_hanging_inspection(h: Harness) -> None:
    hang(h, "bad")
    h.pleg.inspect_limit = DEADLINE
    h.runtime.set_pods(make_pod("bad", [container("c1", RUNNING)]))
    h.pleg.start(golang.background())
    wait_for("the pod is inspected", lambda: h.runtime.inspected == ["bad"])
    h.pleg.stop()
    wait_for_end_of_threads("pleg-")
    assert h.cache.get(BAD) == kubecontainer.PodStatus(id=BAD)


# ---- The worker loop ----


@pytest.fixture
def on_demand() -> Iterator[None]:
    with featuregatetesting.set_feature_gate_during_test(features.feature_gate, features.PLEG_ON_DEMAND_RELIST, True):
        yield


class Loop:
    """Run the worker loop of a PLEG with a relist period of two seconds, on-demand relists and two running pods."""

    def __init__(self) -> None:
        self.h = Harness(period=2.0)
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self._timer = self.h.clock.new_timer(2)
        self._find_pods()

    def _find_pods(self) -> None:
        """Set the runtime's pods, with the current time as their timestamp."""
        pods = [make_pod(id, [container(f"c-{id}", RUNNING)]) for id in ("pod1", "pod2")]
        self.h.runtime.set_pods(*(dataclasses.replace(pod, timestamp=self.h.clock.now()) for pod in pods))

    def iterate(self) -> None:
        self.h.pleg._worker_loop_iteration(self.ctx, self._timer)

    def next_status(self, id: str) -> golang.Channel[object]:
        """Wait for a status that is newer than now; return the channel that receives it."""
        return get_newer_than(self.h, id, self.h.clock.now())[0]

    def request_relist(self, id: str, after: float) -> None:
        """Request a relist of the pod after a delay in seconds."""
        self.h.clock.step(after)
        self.h.pleg.request_relist(types.UID(id))
        self._find_pods()


@pytest.fixture
def loop(on_demand: None) -> Iterator[Loop]:
    made = Loop()
    yield made
    made.cancel()
    made.h.pleg.stop()


def test_worker_loop_relists_one_pod_when_that_is_requested(loop: Loop) -> None:
    first, second = loop.next_status("pod1"), loop.next_status("pod2")
    loop.request_relist("pod1", after=1)
    loop.iterate()
    assert first.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=POD_1)
    assert second.recv(0.02) == (None, False)
    assert loop.h.runtime.called_functions == []
    loop.request_relist("pod2", after=0)
    loop.iterate()
    assert second.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=types.UID("pod2"))


def test_worker_loop_serves_a_request_by_the_relist_of_all_that_is_due(loop: Loop) -> None:
    first, second = loop.next_status("pod1"), loop.next_status("pod2")
    loop.request_relist("pod2", after=2)
    loop.iterate()
    assert loop.h.runtime.called_functions == ["get_pods"]
    assert first.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=POD_1)
    assert second.recv(DEADLINE)[0] == kubecontainer.PodStatus(id=types.UID("pod2"))
    loop.iterate()
    assert loop.h.runtime.inspected == ["pod1", "pod2"]


def test_worker_loop_inspects_an_unchanged_pod_when_that_is_requested(loop: Loop) -> None:
    loop.request_relist("pod1", after=2)
    loop.iterate()
    loop.iterate()
    loop.h.pleg.request_reinspect(POD_1)
    loop.request_relist("pod1", after=1)
    loop.iterate()
    assert loop.h.runtime.inspected == ["pod1", "pod2", "pod1"]
    assert loop.h.events()[-1] == ("pod2", "ContainerStarted", "c-pod2")


def test_worker_loop_ends_with_its_context(loop: Loop) -> None:
    loop.cancel()
    loop.iterate()
    assert loop.h.runtime.called_functions == []


@pytest.mark.usefixtures("on_demand")
def test_one_relist_of_a_pod_serves_all_requests_that_were_made_before(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, timer = golang.background(), h.clock.new_timer(60)
    pod = make_pod("pod", [container("c", RUNNING)])
    h.runtime.set_pods(pod)
    get_pod = mock.Mock(side_effect=h.runtime.get_pod)
    monkeypatch.setattr(h.runtime, "get_pod", get_pod)
    for _ in range(3):
        h.pleg.request_relist(types.UID("pod"))
    h.clock.step(1)
    pod.timestamp = h.clock.now()
    for _ in range(3):
        h.pleg._worker_loop_iteration(ctx, timer)
    assert get_pod.call_count == 1
    h.clock.step(1)
    h.pleg.request_relist(types.UID("pod"))
    h.pleg._worker_loop_iteration(ctx, timer)
    assert get_pod.call_count == 2, "the pod may have changed since the first relist"
    h.pleg.stop()


def test_relist_requests_overflow(h: Harness) -> None:
    for i in range(generic._RELIST_REQUEST_CAPACITY + 5):
        h.pleg.request_relist(types.UID(f"pod-{i}"))
    assert len(h.pleg._relist_requests) == generic._RELIST_REQUEST_CAPACITY


def test_on_demand_relist_can_be_switched_off(h: Harness) -> None:
    gate = features.PLEG_ON_DEMAND_RELIST
    with featuregatetesting.set_feature_gate_during_test(features.feature_gate, gate, False):
        h.pleg.request_relist(types.UID("pod"))
    assert len(h.pleg._relist_requests) == 0


def test_relist_pod_that_is_not_there(h: Harness) -> None:
    h.pleg._relist_pod(types.UID("nobody"))
    assert list(h.pleg.pod_records) == []


def test_runs_until_stopped() -> None:
    h = Harness(period=5.0)
    h.pleg.start(golang.background())
    h.pleg.start(golang.background())  # The second start does nothing.
    wait_for("the first relist", lambda: h.runtime.called_functions == ["get_pods"])
    h.clock.wait_for_waiters()
    h.clock.step(5)
    wait_for("relists: 2", lambda: h.runtime.called_functions == ["get_pods"] * 2)
    h.pleg.stop()
    wait_for_end_of_threads("pleg-relist")
    h.pleg.start(golang.background())
    wait_for("relists: 3", lambda: h.runtime.called_functions == ["get_pods"] * 3)
    h.pleg.stop()
    wait_for_end_of_threads("pleg-relist")


def test_goes_on_after_a_crash() -> None:
    h = Harness(period=5.0)
    h.runtime.set_pods(make_pod("p", [container("c", "nonsense")]))  # type: ignore[arg-type]
    h.pleg.start(golang.background())
    wait_for("the first relist", lambda: h.runtime.called_functions == ["get_pods"])
    h.clock.wait_for_waiters()
    h.runtime.set_pods()
    h.clock.step(5)
    wait_for("relists: 2", lambda: h.runtime.called_functions == ["get_pods"] * 2)
    h.pleg.stop()
    wait_for_end_of_threads("pleg-relist")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (generic.PLEGContainerState.NON_EXISTENT, generic.PLEGContainerState.RUNNING, ["ContainerStarted"]),
        (generic.PLEGContainerState.RUNNING, generic.PLEGContainerState.EXITED, ["ContainerDied"]),
        (generic.PLEGContainerState.RUNNING, generic.PLEGContainerState.UNKNOWN, ["ContainerChanged"]),
        (generic.PLEGContainerState.EXITED, generic.PLEGContainerState.NON_EXISTENT, ["ContainerRemoved"]),
        (
            generic.PLEGContainerState.UNKNOWN,
            generic.PLEGContainerState.NON_EXISTENT,
            ["ContainerDied", "ContainerRemoved"],
        ),
        (generic.PLEGContainerState.RUNNING, generic.PLEGContainerState.RUNNING, []),
    ],
    ids=str,
)
def test_generate_events(old: generic.PLEGContainerState, new: generic.PLEGContainerState, expected: list[str]) -> None:
    events = generic.generate_events(types.UID("uid"), "cid", old, new)
    assert [(event.id, event.type, event.data) for event in events] == [("uid", t, "cid") for t in expected]


# ---- Failures of one pod, and a machine without threads ----


@failures
def test_pod_whose_record_cannot_be_updated_stalls_only_itself(
    h: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    deliver = h.pleg._deliver
    monkeypatch.setattr(h.pleg, "_deliver", failing_once(deliver, err, "bad"))
    pods = [make_pod(id, [container(f"c-{id}", RUNNING)]) for id in ("a", "bad", "z")]
    h.runtime.set_pods(*pods)
    before = h.clock.now()
    assert h.relist() == [("a", "ContainerStarted", "c-a"), ("z", "ContainerStarted", "c-z")]
    assert h.observer.failed[-1] is False
    idle = h.cache.get_newer_than(types.UID("none"), before)
    assert idle.id == "none", "all other pods are up to date"
    assert h.relist() == [("bad", "ContainerStarted", "c-bad")]


@failures
def test_pod_whose_end_cannot_be_told_is_gone_with_the_next_relist(
    h: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    """The worker of a removed pod waits for the next relist at most."""
    h.runtime.set_pods(make_pod("bad", [container("c1", RUNNING)]))
    h.relist()
    h.runtime.set_pods()
    monkeypatch.setattr(h.pleg, "_event_channel", _FailingOnce(h.channel, err))
    assert h.relist() == []
    before = h.clock.now()
    assert h.relist() == [("bad", "ContainerDied", "c1"), ("bad", "ContainerRemoved", "c1")]
    assert h.cache.get_newer_than(BAD, before) == kubecontainer.PodStatus(id=BAD)
    assert list(h.pleg.pod_records) == []


class _FailingOnce:
    """Represent a channel that fails to accept its first event."""

    def __init__(self, channel: golang.Channel[pleg.PodLifecycleEvent], err: Exception) -> None:
        self.try_send = failing_once(channel.try_send, err)


@failures
def test_pods_that_cannot_be_counted_are_listed(h: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    monkeypatch.setattr(h.pleg, "_update_running_pod_and_container_metrics", raising(err))
    h.runtime.set_pods(make_pod("a", [container("c1", RUNNING)]))
    assert h.relist() == [("a", "ContainerStarted", "c1")]


def test_without_threads_the_relisting_one_inspects(h: Harness) -> None:
    h.runtime.set_pods(make_pod("a", [container("c1", RUNNING)]))
    with golangtesting.out_of_threads("pleg-inspect"):
        assert h.relist() == [("a", "ContainerStarted", "c1")]
    h.runtime.set_pods(make_pod("a", [container("c1", EXITED)]))
    assert h.relist() == [("a", "ContainerDied", "c1")]
    assert any(thread.name == "pleg-inspect" for thread in threading.enumerate())


def test_start_that_finds_no_thread_can_be_made_again(h: Harness) -> None:
    with golangtesting.out_of_threads("pleg-relist"), pytest.raises(golang.ThreadError):
        h.pleg.start(golang.background())
    h.pleg.start(golang.background())
    wait_for("the first relist has ended", lambda: h.pleg._relist_time is not None)
