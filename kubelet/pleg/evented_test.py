"""Test the evented PLEG.

Go: pkg/kubelet/pleg/evented_test.go
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_for, wait_for_end_of_threads

from kubelet import container as kubecontainer
from kubelet import metrics, pleg
from kubelet.container import testing as containertest
from kubelet.pleg import evented
from pkg import golang
from pkg.apimachinery import types
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.component_base.metrics import testing as metricstesting
from pkg.golang import testing as golangtesting

UID = types.UID("pod")
OTHER_UID = types.UID("p")

DEADLINE = 30.0
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
RUNNING = kubecontainer.CONTAINER_STATE_RUNNING
EXITED = kubecontainer.CONTAINER_STATE_EXITED


class RuntimeService:
    """Fake the event stream of a runtime service: it delivers what is sent to `events`, and fails once `err` is set."""

    def __init__(self) -> None:
        self.events: golang.Channel[runtimeapi.ContainerEventResponse] = golang.Channel()
        self.err: Exception | None = None
        self.calls = 0

    def get_container_events(
        self,
        ctx: golang.Context,
        container_events_ch: golang.Channel[runtimeapi.ContainerEventResponse],
        connection_established_callback: Callable[[Iterator[Any]], None] | None,
    ) -> None:
        self.calls += 1
        if self.err is not None:
            raise self.err
        assert connection_established_callback is not None
        connection_established_callback(iter(()))
        while True:
            event = golang.select(ctx.done(), self.events).took(self.events)
            if event is None:
                raise golang.Canceled
            container_events_ch.send(event.value)


class Handler:
    """Fake a generic PLEG that records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.evented_in_use = False

    def start(self, ctx: golang.Context) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def update(self, relist_duration: pleg.RelistDuration) -> None:
        self.calls.append(f"update {relist_duration.relist_period}")

    def relist(self) -> None:
        self.calls.append("relist")

    def request_relist(self, pod_uid: str) -> None:
        self.calls.append(f"relist {pod_uid}")

    def request_reinspect(self, pod_uid: str) -> None:
        self.calls.append(f"reinspect {pod_uid}")

    def watch(self) -> golang.Channel[pleg.PodLifecycleEvent]:
        raise NotImplementedError

    def healthy(self) -> None:
        pass


class Harness:
    def __init__(self) -> None:
        self.runtime = containertest.FakeRuntime()
        self.service = RuntimeService()
        self.generic = Handler()
        self.cache = kubecontainer.CacheImpl()
        self.channel: golang.Channel[pleg.PodLifecycleEvent] = golang.Channel(10)
        self.clock = testingclock.FakeClock()
        self.pleg = pleg.EventedPLEG(
            self.runtime,
            self.service,  # type: ignore[arg-type]
            self.channel,
            self.cache,
            self.generic,
            3,
            pleg.RelistDuration(1.0, 180.0),
            self.clock,
        )

    def receive(self) -> pleg.PodLifecycleEvent | None:
        return self.channel.recv(DEADLINE)[0]


@pytest.fixture
def h() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.pleg.stop()
    wait_for_end_of_threads("evented-pleg")


def event(type: runtimeapi.ContainerEventType.ValueType, container_id: str = "c1") -> runtimeapi.ContainerEventResponse:
    metadata = runtimeapi.PodSandboxMetadata(uid="pod", name="n", namespace="ns")
    return runtimeapi.ContainerEventResponse(
        container_id=container_id,
        container_event_type=type,
        created_at=int(NOW.timestamp() * 1e9),
        pod_sandbox_status=runtimeapi.PodSandboxStatus(id="s1", metadata=metadata),
    )


def pod_status(state: kubecontainer.State) -> kubecontainer.PodStatus:
    return kubecontainer.PodStatus(
        id=UID,
        sandbox_statuses=[runtimeapi.PodSandboxStatus(id="s1")],
        container_statuses=[kubecontainer.Status(id=kubecontainer.ContainerID("containerd", "s1"), state=state)],
    )


def test_healthy(h: Harness) -> None:
    for _ in range(9):
        h.channel.send(pleg.PodLifecycleEvent(OTHER_UID, pleg.POD_SYNC))
    h.pleg.healthy()
    h.channel.send(pleg.PodLifecycleEvent(OTHER_UID, pleg.POD_SYNC))
    with pytest.raises(pleg.PLEGUnhealthyError, match="channel capacity is full with 10 events"):
        h.pleg.healthy()


def test_events(h: Harness) -> None:
    h.runtime.pod_status = pod_status(RUNNING)
    with metricstesting.moves(metrics.EVENTED_PLEG_CONN):
        h.pleg.start(golang.background())
        wait_for("the stream of events is opened", lambda: h.service.calls == 1)
    assert h.generic.evented_in_use

    before = metricstesting.value(metrics.EVENTED_PLEG_CONN_LATENCY)
    h.service.events.send(event(runtimeapi.CONTAINER_CREATED_EVENT))
    h.service.events.send(event(runtimeapi.CONTAINER_STARTED_EVENT))
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_STARTED, "c1")
    assert h.cache.get(UID) is h.runtime.pod_status

    h.service.events.send(event(runtimeapi.CONTAINER_STOPPED_EVENT))
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_DIED, "c1")

    h.service.events.send(event(runtimeapi.CONTAINER_DELETED_EVENT))
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_DIED, "c1")
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_REMOVED, "c1")
    assert len(h.cache) == 1
    assert metricstesting.value(metrics.EVENTED_PLEG_CONN_LATENCY) - before >= 3

    # The event concerns the sandbox itself.
    h.service.events.send(event(runtimeapi.CONTAINER_DELETED_EVENT, "s1"))
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_DIED, "s1")
    assert len(h.cache) == 0


def test_events_that_make_no_sense_are_skipped(h: Harness) -> None:
    h.pleg.start(golang.background())
    h.service.events.send(runtimeapi.ContainerEventResponse(container_id="c1"))
    broken = event(runtimeapi.CONTAINER_STARTED_EVENT)
    broken.container_event_type = 77  # type: ignore[assignment]
    h.service.events.send(broken)
    h.service.events.send(event(runtimeapi.CONTAINER_STARTED_EVENT))
    assert h.receive() == pleg.PodLifecycleEvent(UID, pleg.CONTAINER_STARTED, "c1")


def test_falls_back(h: Harness) -> None:
    h.service.err = RuntimeError("unimplemented")
    with metricstesting.moves(metrics.EVENTED_PLEG_CONN_ERR, 3):
        h.pleg.start(golang.background())
        wait_for("the generic PLEG is started", lambda: h.generic.calls[-1:] == ["start"])
    assert h.generic.calls == ["relist", "relist", "relist", "stop", "update 1.0", "start"]
    assert h.service.calls == 3
    assert not h.pleg.in_use
    assert not h.generic.evented_in_use


def test_stops_with_its_context(h: Harness) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    h.pleg.start(ctx)
    wait_for("the stream of events is opened", lambda: h.service.calls == 1)
    cancel()
    wait_for_end_of_threads("evented-pleg")
    assert h.generic.calls == []


def test_updates_the_caches_time(h: Harness) -> None:
    h.pleg.start(golang.background())
    start = h.clock.now() - datetime.timedelta(seconds=1)
    assert h.cache.get_newer_than(UID, start) == kubecontainer.PodStatus(id=UID)


def test_passes_requests_on(h: Harness) -> None:
    h.pleg.request_relist(types.UID("a"))
    h.pleg.request_reinspect(types.UID("b"))
    assert h.generic.calls == ["relist a", "reinspect b"]


def test_update_running_pod_metric(h: Harness) -> None:
    metrics.RUNNING_POD_COUNT.set(0)
    h.cache.update_time(NOW, ())
    steps = [(RUNNING, 1), (RUNNING, 1), (EXITED, 0), (RUNNING, 1)]
    for state, expected in steps:
        h.pleg._update_running_metrics(pod_status(state))
        h.cache.set(UID, pod_status(state), None, NOW)
        assert metricstesting.value(metrics.RUNNING_POD_COUNT) == expected


def test_update_running_container_metric(h: Harness) -> None:
    for state in (RUNNING, EXITED):
        metrics.RUNNING_CONTAINER_COUNT.labels(state).set(0)
    h.cache.update_time(NOW, ())
    for state in (RUNNING, EXITED, EXITED):
        h.pleg._update_running_metrics(pod_status(state))
        h.cache.set(UID, pod_status(state), None, NOW)
    assert metricstesting.value(metrics.RUNNING_CONTAINER_COUNT.labels(RUNNING)) == 0
    assert metricstesting.value(metrics.RUNNING_CONTAINER_COUNT.labels(EXITED)) == 1


def test_running_metrics_after_a_failed_inspection(h: Harness) -> None:
    metrics.RUNNING_POD_COUNT.set(0)
    h.cache.set(UID, None, RuntimeError("inspection failed"), NOW)
    h.pleg._update_running_metrics(pod_status(RUNNING))
    assert metricstesting.value(metrics.RUNNING_POD_COUNT) == 0


READY = runtimeapi.SANDBOX_READY
NOT_READY = runtimeapi.SANDBOX_NOTREADY


@pytest.mark.parametrize(
    ("ips", "sandboxes", "old_ips", "expected"),
    [
        pytest.param(["10.0.0.10"], [], ["192.168.0.10"], ["10.0.0.10"], id="the status has addresses"),
        pytest.param([], [READY, NOT_READY], ["192.168.0.10"], [], id="a sandbox is ready"),
        pytest.param([], [], [], [], id="neither has addresses"),
        pytest.param([], [NOT_READY, NOT_READY], ["192.168.0.10"], ["192.168.0.10"], id="no sandbox is ready"),
    ],
)
def test_get_pod_ips(
    ips: list[str],
    sandboxes: list[runtimeapi.PodSandboxState.ValueType],
    old_ips: list[str],
    expected: list[str],
) -> None:
    cache = kubecontainer.CacheImpl()
    cache.set(OTHER_UID, kubecontainer.PodStatus(id=OTHER_UID, ips=old_ips), None, NOW)
    statuses = [runtimeapi.PodSandboxStatus(state=state) for state in sandboxes]
    status = kubecontainer.PodStatus(id=OTHER_UID, ips=ips, sandbox_statuses=statuses)
    assert pleg.get_pod_ips(cache, OTHER_UID, status) == expected


def test_get_pod_ips_after_a_failed_inspection() -> None:
    cache = kubecontainer.CacheImpl()
    cache.set(OTHER_UID, None, RuntimeError("inspection failed"), NOW)
    assert pleg.get_pod_ips(cache, OTHER_UID, kubecontainer.PodStatus(id=OTHER_UID)) == []


@failures
def test_falls_back_though_relisting_fails(h: Harness, monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    monkeypatch.setattr(h.generic, "relist", raising(err))
    monkeypatch.setattr(evented, "_FALL_BACK_RETRY_PERIOD", 0.001)
    monkeypatch.setattr(h.generic, "start", failing_once(h.generic.start, err))
    h.service.err = RuntimeError("unimplemented")
    h.pleg.start(golang.background())
    wait_for("the generic PLEG is started", lambda: h.generic.calls[-1:] == ["start"])


def test_falls_back_when_there_is_no_thread_to_listen(h: Harness) -> None:
    with golangtesting.out_of_threads("evented-pleg-stream"):
        h.pleg.start(golang.background())
        wait_for("the generic PLEG is started", lambda: h.generic.calls[-1:] == ["start"])
    assert not h.pleg.in_use


def test_fall_back_that_finds_no_thread_ends_with_the_kubelet(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    tried: golang.Channel[None] = golang.Channel(1)

    def start(ctx: golang.Context) -> None:
        tried.try_send(None)
        raise golang.ThreadError("no more")

    monkeypatch.setattr(h.generic, "start", start)
    h.service.err = RuntimeError("unimplemented")
    h.pleg.start(ctx)
    assert tried.recv(DEADLINE)[1]
    cancel()
