"""Test the sync loop, its handlers, and the steps of pod workers."""

from __future__ import annotations

import contextlib
import datetime
import io
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework.waiting import wait_for_end_of_threads

from kubelet import cm, kubelet_resize, lifecycle, metrics, nodeshutdown, pleg, util, volumemanager
from kubelet import container as kubecontainer
from kubelet import kubelet as kubelet_module
from kubelet import types as kubetypes
from kubelet.apis.podresources import server as podresources_server
from kubelet.cm import resourceupdates
from kubelet.cm.testing import FakePodContainerManager
from kubelet.config.testing import FakeSourcesReady
from kubelet.errors import NetworkNotReadyError, PodCgroupError, StillRunningError
from kubelet.kubelet_pods import PodsOnNode
from kubelet.pod_workers import SyncPodResult
from kubelet.prober import results as proberesults
from kubelet.prober.worker import Worker
from kubelet.testing import FakeSyncHandler, TestKubelet, new_pod, runtime_pod
from pkg import features, golang, klog, mount_utils
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.util.runtime.testing import failing_once, raising
from pkg.apiserver.server import healthz
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import testing as metricstesting

State = kubecontainer.State
NOTHING_FOUND = PodsOnNode(begun=set(), cgroups={}, running=[], seconds=0.0)


class Loop:
    """Run single iterations of the sync loop on channels of the test."""

    def __init__(self, test_kubelet: TestKubelet) -> None:
        self.test_kubelet = test_kubelet
        self.kubelet = test_kubelet.kubelet
        self.handler = FakeSyncHandler()
        self.config_ch: golang.Channel[kubetypes.PodUpdate] = golang.Channel(10)
        self.sync_ch: golang.Channel[Any] = golang.Channel(1)
        self.housekeeping_ch: golang.Channel[PodsOnNode] = golang.Channel(1)
        self.pod = new_pod("p")
        self.kubelet.pod_manager.add_pod(self.pod)

    def iterate(self, ctx: golang.Context | None = None) -> bool:
        return self.kubelet.sync_loop_iteration(
            ctx or self.test_kubelet.ctx,
            self.config_ch,
            self.handler,
            self.sync_ch,
            self.housekeeping_ch,
            self.test_kubelet.pleg.channel,
        )


@pytest.fixture
def loop(test_kubelet: TestKubelet) -> Loop:
    return Loop(test_kubelet)


# ---- sync_loop_iteration ----


@pytest.mark.parametrize(
    ("operation", "call"),
    [
        (kubetypes.ADD, "additions"),
        (kubetypes.UPDATE, "updates"),
        (kubetypes.DELETE, "updates"),
        (kubetypes.REMOVE, "removes"),
        (kubetypes.RECONCILE, "reconcile"),
    ],
)
def test_config_update(loop: Loop, operation: kubetypes.PodOperation, call: str) -> None:
    loop.config_ch.send(kubetypes.PodUpdate(pods=[new_pod("a"), new_pod("b")], op=operation, source="file"))
    assert loop.iterate()
    assert loop.handler.calls == [(call, ["a", "b"])]


def test_config_update_that_cannot_be_logged(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The source does not send the update again."""
    monkeypatch.setattr(klog, "kobjs", raising(MemoryError()))
    loop.config_ch.send(kubetypes.PodUpdate(pods=[new_pod("a")], op=kubetypes.ADD, source="file"))
    assert loop.iterate()
    assert loop.handler.calls == [("additions", ["a"])]


def test_config_update_that_the_loop_does_not_know(loop: Loop) -> None:
    loop.config_ch.send(kubetypes.PodUpdate(pods=[new_pod("a")], op=kubetypes.SET, source="file"))
    assert loop.iterate()
    assert loop.handler.calls == []


def test_source_that_has_spoken_is_noted(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    monkeypatch.setattr(loop.kubelet.sources_ready, "add_source", sources.append)
    loop.config_ch.send(kubetypes.PodUpdate(pods=[], op=kubetypes.ADD, source="url"))
    assert loop.iterate()
    assert sources == ["url"]


def test_source_of_which_pods_are_missing_has_not_spoken(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    monkeypatch.setattr(loop.kubelet.sources_ready, "add_source", sources.append)
    loop.config_ch.send(kubetypes.PodUpdate([new_pod("a")], kubetypes.ADD, "file", complete=False))
    assert loop.iterate()
    assert (loop.handler.calls, sources) == ([("additions", ["a"])], [])


def test_volumes_are_looked_at_when_the_last_source_has_spoken(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = FakeSourcesReady(False)
    monkeypatch.setattr(sources, "add_source", lambda source: setattr(sources, "all_ready", lambda: True))
    test_kubelet.kubelet.sources_ready = sources
    update = kubetypes.PodUpdate(pods=[], op=kubetypes.ADD, source="url")
    for _ in range(2):
        test_kubelet.kubelet._dispatch_config_update(test_kubelet.ctx, update, test_kubelet.kubelet)
    assert test_kubelet.volumes.changes == ["sources"]
    assert test_kubelet.kubelet.all_sources_seen.try_recv() == (None, False, True)


def test_pending_resizes_are_tried_again_when_the_last_source_has_spoken(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.sources_ready = sources = FakeSourcesReady(False)
    monkeypatch.setattr(sources, "add_source", lambda source: setattr(sources, "ready", True))
    ready: list[bool] = []
    monkeypatch.setattr(
        kubelet.allocation_manager, "retry_pending_resizes", lambda trigger: ready.append(sources.all_ready())
    )
    update = kubetypes.PodUpdate(pods=[], op=kubetypes.ADD, source="api")
    for _ in range(2):
        kubelet._dispatch_config_update(test_kubelet.ctx, update, FakeSyncHandler())
    assert ready == [True]


def test_loop_ends_with_its_config_channel(loop: Loop) -> None:
    loop.config_ch.close()
    assert not loop.iterate()
    assert loop.handler.calls == []


def test_loop_ends_with_its_context(loop: Loop) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    assert not loop.iterate(ctx)


@pytest.mark.parametrize(
    ("event_type", "worthy"),
    [
        (pleg.CONTAINER_STARTED, True),
        (pleg.CONTAINER_DIED, True),
        (pleg.CONTAINER_CHANGED, True),
        (pleg.POD_SYNC, True),
        (pleg.CONTAINER_REMOVED, False),
    ],
)
def test_pleg_event(loop: Loop, event_type: Any, worthy: bool) -> None:
    event = pleg.PodLifecycleEvent(id=loop.pod.metadata.uid, type=event_type, data=None)
    assert kubelet_module.is_sync_pod_worthy(event) == worthy
    loop.test_kubelet.pleg.channel.send(event)
    assert loop.iterate()
    assert loop.handler.calls == ([("syncs", ["p"])] if worthy else [])


def test_pleg_event_of_an_unknown_pod(loop: Loop) -> None:
    loop.test_kubelet.pleg.channel.send(
        pleg.PodLifecycleEvent(id=types.UID("unknown"), type=pleg.CONTAINER_STARTED, data="c")
    )
    assert loop.iterate()
    assert loop.handler.calls == []


def test_dead_container_is_cleared_away(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    cleared: list[tuple[str, str]] = []
    monkeypatch.setattr(loop.kubelet, "clean_up_containers_in_pod", lambda *args: cleared.append(args))
    for event_type in (pleg.CONTAINER_DIED, pleg.CONTAINER_STARTED):
        loop.test_kubelet.pleg.channel.send(
            pleg.PodLifecycleEvent(id=types.UID("gone"), type=event_type, data="container")
        )
        assert loop.iterate()
    assert cleared == [("gone", "container")], "containers of removed pods are deleted too"


def test_sync_tick(loop: Loop) -> None:
    loop.sync_ch.send(None)
    assert loop.iterate()
    assert loop.handler.calls == [], "no pod is due"
    loop.kubelet.work_queue.enqueue(loop.pod.metadata.uid, 5.0)
    loop.test_kubelet.clock.step(6)
    loop.sync_ch.send(None)
    assert loop.iterate()
    assert loop.handler.calls == [("syncs", ["p"])]


@pytest.mark.parametrize("fails", ["get_work", "get_pods", "log"])
def test_no_pod_misses_its_sync_for_want_of_memory(loop: Loop, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    kubelet = loop.kubelet
    uid = loop.pod.metadata.uid
    kubelet.work_queue.enqueue(uid, 0.0)
    loop.test_kubelet.clock.step(1)
    get_work, get_pods = kubelet.work_queue.get_work, kubelet.pod_manager.get_pods

    def take_and_fail() -> list[str]:
        get_work()
        raise MemoryError

    match fails:
        case "get_work":
            monkeypatch.setattr(kubelet.work_queue, "get_work", take_and_fail)
        case "get_pods":
            monkeypatch.setattr(kubelet.pod_manager, "get_pods", failing_once(get_pods, MemoryError()))
        case "log":
            monkeypatch.setattr(klog, "kobjs", failing_once(klog.kobjs, MemoryError()))
    for _ in range(2):
        loop.sync_ch.send(None)
        assert loop.iterate()
        monkeypatch.setattr(kubelet.work_queue, "get_work", get_work)
    assert loop.handler.calls == [("syncs", ["p"])]
    loop.sync_ch.send(None)
    assert loop.iterate()
    assert loop.handler.calls == [("syncs", ["p"])]


CONTAINER = kubecontainer.ContainerID("test", "c")


@pytest.mark.parametrize(
    ("result", "called"),
    [(proberesults.FAILURE, True), (proberesults.SUCCESS, False), (proberesults.UNKNOWN, False)],
)
def test_liveness_update(loop: Loop, result: proberesults.Result, called: bool) -> None:
    loop.kubelet.liveness_manager.set(CONTAINER, result, loop.pod)
    assert loop.iterate()
    assert loop.handler.calls == ([("syncs", ["p"])] if called else [])
    assert loop.test_kubelet.pleg.relists == ([loop.pod.metadata.uid] if called else [])


@pytest.mark.parametrize("result", [proberesults.SUCCESS, proberesults.FAILURE])
@pytest.mark.parametrize("kind", ["readiness", "startup"])
def test_readiness_and_startup_updates(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, kind: str, result: proberesults.Result
) -> None:
    noted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(loop.kubelet.status_manager, f"set_container_{kind}", lambda *args: noted.append(args))
    getattr(loop.kubelet, f"{kind}_manager").set(CONTAINER, result, loop.pod)
    assert loop.iterate()
    assert noted == [(loop.pod.metadata.uid, CONTAINER, result == proberesults.SUCCESS)]
    assert loop.handler.calls == [("syncs", ["p"])]
    assert loop.test_kubelet.pleg.relists == ([loop.pod.metadata.uid] if kind == "startup" else [])


@pytest.mark.parametrize("kind", ["readiness", "startup"])
def test_result_of_a_probe_that_comes_late_does_not_undo_a_newer_one(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    noted: list[bool] = []
    monkeypatch.setattr(loop.kubelet.status_manager, f"set_container_{kind}", lambda *args: noted.append(args[-1]))
    manager = getattr(loop.kubelet, f"{kind}_manager")
    for result in (proberesults.FAILURE, proberesults.SUCCESS):
        manager.set(CONTAINER, result, loop.pod)
    assert loop.iterate() and loop.iterate()
    assert noted == [True, True]


def test_probe_of_a_pod_that_is_gone(loop: Loop) -> None:
    loop.kubelet.liveness_manager.set(CONTAINER, proberesults.FAILURE, new_pod("gone"))
    assert loop.iterate()
    assert loop.handler.calls == []


def test_container_manager_update(loop: Loop) -> None:
    loop.kubelet.container_manager.updates().send(resourceupdates.Update(("gone", loop.pod.metadata.uid)))
    assert loop.iterate()
    loop.kubelet.container_manager.updates().send(resourceupdates.Update(("gone",)))
    assert loop.iterate()
    assert loop.handler.calls == [("syncs", ["p"])]


@pytest.mark.parametrize("event", ["nothing", "sources", "clock", "end"])
def test_local_agents_wait_for_the_last_source(test_kubelet: TestKubelet, event: str) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.sources_ready = FakeSourcesReady(event == "nothing")
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    waiting = golang.go(kubelet._wait_for_sources, ctx, 5.0, name="waits-for-sources")
    match event:
        case "sources":
            kubelet.all_sources_seen.close()
        case "clock":
            test_kubelet.clock.wait_for_waiters()
            test_kubelet.clock.step(4.9)
            assert waiting.is_alive()
            test_kubelet.clock.step(0.2)
        case "end":
            cancel()
    waiting.join(30)
    assert not waiting.is_alive()
    cancel()


def test_local_agents_are_not_served_before(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    done: list[str] = []

    def serve(*args: object) -> None:
        done.append("served")
        cancel()

    monkeypatch.setattr(test_kubelet.kubelet, "_wait_for_sources", lambda ctx, patience: done.append("waited"))
    monkeypatch.setattr(podresources_server, "listen_and_serve_pod_resources", serve)
    test_kubelet.kubelet.listen_and_serve_pod_resources(ctx)
    assert done == ["waited", "served"]


@pytest.mark.parametrize("ready", [True, False])
def test_housekeeping_waits_for_all_sources(loop: Loop, ready: bool) -> None:
    loop.kubelet.sources_ready = FakeSourcesReady(ready)
    loop.housekeeping_ch.send(NOTHING_FOUND)
    assert loop.iterate()
    assert loop.handler.calls == ([("cleanups", [])] if ready else [])


def test_failed_housekeeping_does_not_end_the_loop(loop: Loop) -> None:
    loop.handler.err = RuntimeError("runtime is away")
    loop.kubelet.sources_ready = FakeSourcesReady(True)
    loop.housekeeping_ch.send(NOTHING_FOUND)
    assert loop.iterate()


# ---- sync_loop ----


def test_loop_pauses_longer_and_longer_while_the_runtime_is_in_trouble(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = test_kubelet.kubelet
    pauses = test_kubelet.clock.skip_pauses()
    trouble = [True] * 9 + [False] + [True] * 2 + [False]

    def errors() -> Exception | None:
        return RuntimeError("runtime is down") if trouble.pop(0) else None

    def iterate(*args: object) -> bool:
        return bool(trouble)

    monkeypatch.setattr(kubelet.runtime_state, "runtime_errors", errors)
    monkeypatch.setattr(kubelet, "sync_loop_iteration", iterate)
    kubelet.sync_loop(test_kubelet.ctx, golang.Channel(1), FakeSyncHandler())
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 0.1, 0.2]


def test_loop_waits_until_all_pods_have_been_looked_at(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the first relist is complete, a pod with a terminal phase would count as terminated."""
    kubelet = test_kubelet.kubelet
    pauses = test_kubelet.clock.skip_pauses()
    kubelet.pod_cache = kubecontainer.CacheImpl()
    iterated: list[bool] = []

    def errors() -> None:
        if len(pauses) == 2:
            kubelet.pod_cache.update_time(test_kubelet.clock.steady(), {types.UID("slow")})

    def iterate(*args: object) -> bool:
        iterated.append(kubelet.pod_cache.is_filled())
        return False

    monkeypatch.setattr(kubelet.runtime_state, "runtime_errors", errors)
    monkeypatch.setattr(kubelet, "sync_loop_iteration", iterate)
    kubelet.sync_loop(test_kubelet.ctx, golang.Channel(1), FakeSyncHandler())
    assert (pauses, iterated) == ([0.1, 0.2], [True])


def test_pause_of_the_loop_ends_with_its_context(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)

    def errors() -> Exception:
        cancel()
        return RuntimeError("runtime is down")

    monkeypatch.setattr(test_kubelet.kubelet.runtime_state, "runtime_errors", errors)
    test_kubelet.kubelet.sync_loop(ctx, golang.Channel(1), FakeSyncHandler())


@pytest.mark.parametrize("stopped", [True, False])
def test_loop_that_is_stopped_in_the_middle_of_a_step(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    """A cancelled wait, as for a preempted pod, ends the loop; a cancellation without a request is an error."""
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)

    def iterate(*args: Any) -> bool:
        if stopped:
            cancel()
        raise golang.Canceled

    monkeypatch.setattr(test_kubelet.kubelet.runtime_state, "runtime_errors", lambda: None)
    monkeypatch.setattr(test_kubelet.kubelet, "sync_loop_iteration", iterate)
    with contextlib.nullcontext() if stopped else pytest.raises(golang.Canceled):
        test_kubelet.kubelet.sync_loop(ctx, golang.Channel(1), FakeSyncHandler())


def test_loop_notes_when_it_came_round(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet = test_kubelet.kubelet
    seen: list[datetime.datetime | None] = [kubelet.latest_loop_entry_time()]
    rounds = [True, False]

    def iterate(*args: object) -> bool:
        seen.append(kubelet.latest_loop_entry_time())
        test_kubelet.clock.step(7)
        return rounds.pop(0)

    monkeypatch.setattr(kubelet.runtime_state, "runtime_errors", lambda: None)
    monkeypatch.setattr(kubelet, "sync_loop_iteration", iterate)
    start = test_kubelet.clock.now()
    kubelet.sync_loop(test_kubelet.ctx, golang.Channel(1), FakeSyncHandler())
    assert seen == [None, start, start + datetime.timedelta(seconds=7)]
    assert test_kubelet.clock.waiters() == 0, "the loop stops its tickers"


class Looks:
    """Replace find_pods_on_node; the test provides the result of each call."""

    def __init__(self, test_kubelet: TestKubelet) -> None:
        self._clock = test_kubelet.clock
        self.begun: golang.Channel[None] = golang.Channel(10)
        self.outcomes: golang.Channel[PodsOnNode | Exception] = golang.Channel()

    def __call__(self, ctx: golang.Context) -> PodsOnNode:
        self.begun.send(None)
        outcome, _ = self.outcomes.recv(30)
        if not isinstance(outcome, PodsOnNode):
            raise outcome or TimeoutError
        return outcome

    def begin(self) -> None:
        """Start the next call, and wait until it has begun."""
        self._clock.step(kubelet_module.HOUSEKEEPING_PERIOD)
        assert self.begun.recv(30) == (None, True)


class NotingHandler(FakeSyncHandler):
    """Send the name of each call to a channel."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: golang.Channel[str] = golang.Channel(10)

    def _note(self, what: str, pods: list[v1.Pod]) -> None:
        self.noted.send(what)


@pytest.fixture
def looks(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> Looks:
    looks = Looks(test_kubelet)
    monkeypatch.setattr(test_kubelet.kubelet, "find_pods_on_node", looks)
    monkeypatch.setattr(test_kubelet.kubelet.runtime_state, "runtime_errors", lambda: None)
    return looks


@contextlib.contextmanager
def running_loop(test_kubelet: TestKubelet) -> Iterator[tuple[golang.Channel[kubetypes.PodUpdate], NotingHandler]]:
    """Run the sync loop in a thread, with all sources ready; yield the channel of pod updates and the handler."""
    kubelet, handler = test_kubelet.kubelet, NotingHandler()
    kubelet.sources_ready = FakeSourcesReady(True)
    updates: golang.Channel[kubetypes.PodUpdate] = golang.Channel(1)
    thread = golang.go(kubelet.sync_loop, test_kubelet.ctx, updates, handler, name="loop")
    try:
        updates.send(kubetypes.PodUpdate([], kubetypes.RECONCILE, "api"))
        assert handler.noted.recv(30) == ("reconcile", True), "the loop handles updates, and has its tickers"
        yield updates, handler
    finally:
        updates.close()
        thread.join(30)
        wait_for_end_of_threads("housekeeping")


def test_loop_goes_on_while_the_runtime_does_not_tell_its_pods(test_kubelet: TestKubelet, looks: Looks) -> None:
    with running_loop(test_kubelet) as (updates, handler):
        looks.begin()
        updates.send(kubetypes.PodUpdate([new_pod("p")], kubetypes.ADD, "api"))
        assert handler.noted.recv(30) == ("additions", True)
        looks.outcomes.send(NOTHING_FOUND)
        assert handler.noted.recv(30) == ("cleanups", True)


def test_look_at_the_node_that_fails_is_not_the_last_one(test_kubelet: TestKubelet, looks: Looks) -> None:
    with running_loop(test_kubelet) as (_, handler):
        for err in (RuntimeError("runtime is away"), RecursionError()):
            looks.begin()
            looks.outcomes.send(err)
        looks.begin()
        looks.outcomes.send(NOTHING_FOUND)
        assert handler.noted.recv(30) == ("cleanups", True)


# ---- Handlers ----


class AdmitHandler:
    """Reject pods by name."""

    def __init__(self, *refused: str) -> None:
        self.refused = refused
        self.asked: list[tuple[str, list[str]]] = []

    def admit(self, attributes: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
        name = attributes.pod.metadata.name
        self.asked.append((name, [pod.metadata.name for pod in attributes.other_pods]))
        if name in self.refused:
            return lifecycle.PodAdmitResult(admit=False, reason="Rejected", message="is rejected")
        return lifecycle.PodAdmitResult(admit=True)


def test_additions_are_admitted_oldest_first(test_kubelet: TestKubelet) -> None:
    admit = AdmitHandler("younger")
    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([admit])
    pods = [new_pod("younger"), new_pod("older"), new_pod("oldest")]
    for age, pod in enumerate(pods):
        pod.metadata.creation_timestamp = test_kubelet.clock.now() - datetime.timedelta(seconds=age)
    test_kubelet.kubelet.handle_pod_additions(test_kubelet.ctx, pods)
    assert test_kubelet.workers.update_types() == [("CREATE", "oldest"), ("CREATE", "older")]
    assert admit.asked == [("oldest", []), ("older", ["oldest"]), ("younger", ["oldest", "older"])]
    status = test_kubelet.status_of(types.UID("uid-younger"))
    assert (status.phase, status.reason, status.message) == ("Failed", "Rejected", "Pod was rejected: is rejected")
    assert test_kubelet.events() == ["Warning Rejected is rejected"]
    assert test_kubelet.kubelet.pod_manager.get_pod_by_uid(types.UID("uid-younger")) is not None, (
        "a rejected pod stays in the pod manager"
    )


def test_refused_pod_does_not_stand_in_the_way_of_others(test_kubelet: TestKubelet) -> None:
    admit = AdmitHandler("first")
    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([admit])
    for name in ("first", "second"):
        test_kubelet.kubelet.handle_pod_additions(test_kubelet.ctx, [new_pod(name)])
    assert admit.asked == [("first", []), ("second", [])]


@pytest.mark.parametrize(("terminating", "phase"), [(True, "Running"), (False, "Failed")])
def test_pod_that_is_at_its_end_is_not_asked_for_admission(
    test_kubelet: TestKubelet, terminating: bool, phase: str
) -> None:
    admit = AdmitHandler("p")
    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([admit])
    pod = new_pod("p")
    pod.status.phase = phase
    test_kubelet.workers.terminating = {pod.metadata.uid} if terminating else set()
    test_kubelet.kubelet.handle_pod_additions(test_kubelet.ctx, [pod])
    assert admit.asked == []
    assert test_kubelet.workers.update_types() == [("CREATE", "p")]


def test_first_refusal_counts(test_kubelet: TestKubelet) -> None:
    first, second = AdmitHandler("p"), AdmitHandler("p")
    manager = test_kubelet.kubelet.allocation_manager
    manager.add_pod_admit_handlers([first, second])
    assert not manager.add_pod([], new_pod("p")).admit
    assert manager.add_pod([], new_pod("other")).admit
    assert ([name for name, _ in first.asked], [name for name, _ in second.asked]) == (["p", "other"], ["other"])


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfexample.com/gpu", "OutOfExtendedResources"),
        ("SysctlForbidden", "SysctlForbidden"),
        ("TopologyAffinityError", "TopologyAffinityError"),
        ("WhateverAPluginSays", "Other"),
    ],
)
def test_refusals_are_counted_by_reasons_that_are_few(test_kubelet: TestKubelet, reason: str, label: str) -> None:
    with metricstesting.moves(metrics.ADMISSION_REJECTIONS_TOTAL.labels(label)):
        test_kubelet.kubelet.reject_pod(new_pod("p"), reason, "no")


def static_and_mirror() -> tuple[v1.Pod, v1.Pod]:
    static, mirror = new_pod("p"), new_pod("p", uid="mirror")
    static.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = "file"
    mirror.metadata.annotations |= {kubetypes.CONFIG_SOURCE_ANNOTATION_KEY: "api", v1.MIRROR_POD_ANNOTATION_KEY: "x"}
    return static, mirror


@pytest.mark.parametrize("how", ["additions", "updates", "removes"])
def test_change_of_a_mirror_pod_is_work_for_its_static_pod(test_kubelet: TestKubelet, how: str) -> None:
    static, mirror = static_and_mirror()
    handle = getattr(test_kubelet.kubelet, f"handle_pod_{how}")
    handle(test_kubelet.ctx, [mirror])
    assert test_kubelet.workers.updates == [], "the mirror pod has no static pod"
    test_kubelet.kubelet.pod_manager.add_pod(static)
    handle(test_kubelet.ctx, [mirror])
    (update,) = test_kubelet.workers.updates
    assert (update.update_type, update.pod) == (kubetypes.SYNC_POD_UPDATE, static)
    assert update.mirror_pod == (None if how == "removes" else mirror), (
        "the worker must create a removed mirror pod again"
    )


def test_mirror_whose_static_pod_is_gone_is_deleted_and_no_other_pod_of_its_name(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = test_kubelet.kubelet
    deleted: list[Mapping[str, str]] = []
    monkeypatch.setattr(kubelet.mirror_pod_client, "delete_in_background", lambda ctx, uids: deleted.append(uids))
    static, mirror = static_and_mirror()
    kubelet.pod_manager.set_pods([static, mirror])
    test_kubelet.housekeep()
    kubelet.pod_manager.remove_pod(static)
    test_kubelet.housekeep()
    assert deleted == [{}, {"p_ns": "mirror"}]


def test_static_pod_is_as_its_mirror_tells_before_anything_is_sent(test_kubelet: TestKubelet) -> None:
    """A known status that is worse than the mirror pod's must not overwrite the mirror pod's."""
    kubelet = test_kubelet.kubelet
    static, mirror = static_and_mirror()
    started = test_kubelet.clock.now() - datetime.timedelta(seconds=60)
    running = v1.ContainerState(running=v1.ContainerStateRunning(started_at=started))
    container = v1.ContainerStatus(name="c", container_id="fake://c", state=running)
    kubelet.pod_manager.add_pod(static)
    kubelet.status_manager.set_pod_status(static, v1.PodStatus(phase=v1.POD_RUNNING, container_statuses=[container]))
    mirror.status.container_statuses = [v1.ContainerStatus(**{**msgspec.structs.asdict(container), "ready": True})]
    mirror.status.start_time = started
    # `found` records what the status manager would find at the very moment at which both pods become known.
    found = []
    add_pod = kubelet.pod_manager.add_pod

    def add_and_look(pod: v1.Pod) -> None:
        add_pod(pod)
        status = test_kubelet.status_of(static.metadata.uid)
        found.append((status.container_statuses[0].ready, status.start_time))

    kubelet.pod_manager.add_pod = add_and_look  # type: ignore[method-assign]
    kubelet.handle_pod_additions(test_kubelet.ctx, [mirror])
    assert found == [(True, started)]


def test_updates_and_syncs(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    test_kubelet.kubelet.handle_pod_updates(test_kubelet.ctx, [pod])
    assert test_kubelet.kubelet.pod_manager.get_pods() == [pod]
    test_kubelet.kubelet.handle_pod_syncs(test_kubelet.ctx, [pod])
    assert test_kubelet.workers.update_types() == [("UPDATE", "p"), ("SYNC", "p")]


@pytest.mark.parametrize("ready", [True, False])
def test_removed_pod_is_ended_once_all_sources_have_spoken(test_kubelet: TestKubelet, ready: bool) -> None:
    test_kubelet.kubelet.sources_ready = FakeSourcesReady(ready)
    pod = new_pod("p")
    test_kubelet.kubelet.pod_manager.add_pod(pod)
    test_kubelet.kubelet.handle_pod_removes(test_kubelet.ctx, [pod])
    assert test_kubelet.kubelet.pod_manager.get_pods() == []
    assert test_kubelet.workers.update_types() == ([("KILL", "p")] if ready else [])


def test_removed_static_pod_is_ended_before_the_api_server_has_spoken(test_kubelet: TestKubelet) -> None:
    test_kubelet.kubelet.sources_ready = FakeSourcesReady(False)
    static, _ = static_and_mirror()
    test_kubelet.kubelet.pod_manager.add_pod(static)
    test_kubelet.kubelet.handle_pod_removes(test_kubelet.ctx, [static])
    assert test_kubelet.workers.update_types() == [("KILL", "p")]


def test_reconcile(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    deleted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        test_kubelet.kubelet.container_deletor, "delete_containers_in_pod", lambda *args: deleted.append(args)
    )
    status = kubecontainer.PodStatus(id=types.UID("uid-evicted"))
    test_kubelet.kubelet.pod_cache.set(types.UID("uid-evicted"), status, None, test_kubelet.clock.now())
    plain, gated, evicted = new_pod("plain"), new_pod("gated"), new_pod("evicted")
    gated.spec.readiness_gates = [v1.PodReadinessGate(condition_type="example.com/gate")]
    gated.status.conditions = [v1.PodCondition(type="Ready", status="True")]
    evicted.status.phase, evicted.status.reason = "Failed", "Evicted"
    test_kubelet.kubelet.handle_pod_reconcile(test_kubelet.ctx, [plain, gated, evicted])
    assert test_kubelet.workers.update_types() == [("SYNC", "gated")], "the readiness has changed"
    assert deleted == [("", status, True)]


def test_pods_to_sync(test_kubelet: TestKubelet) -> None:
    class Deadline:
        def should_sync(self, pod: v1.Pod) -> bool:
            return pod.metadata.name == "late"

    kubelet = test_kubelet.kubelet
    kubelet.pod_sync_loop_handlers = [Deadline()]
    for name in ("due", "later", "late", "none"):
        kubelet.pod_manager.add_pod(new_pod(name))
    for name, delay in (("due", 0.0), ("later", 10.0), ("gone", 0.0)):
        kubelet.work_queue.enqueue(types.UID(f"uid-{name}"), delay)
    test_kubelet.clock.step(1)
    assert sorted(pod.metadata.name for pod in kubelet.get_pods_to_sync()) == ["due", "late"]
    test_kubelet.clock.step(10)
    assert sorted(pod.metadata.name for pod in kubelet.get_pods_to_sync()) == ["late", "later"]


@pytest.mark.parametrize("all_of_them", [True, False])
def test_clean_up_containers_in_pod(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, all_of_them: bool
) -> None:
    deleted: list[tuple[Any, ...]] = []
    kubelet = test_kubelet.kubelet
    monkeypatch.setattr(kubelet.container_deletor, "delete_containers_in_pod", lambda *args: deleted.append(args))
    status = kubecontainer.PodStatus(id=types.UID("u"))
    kubelet.pod_cache.set(types.UID("u"), status, None, test_kubelet.clock.now())
    test_kubelet.workers.content_removable = {"u"} if all_of_them else set()
    kubelet.clean_up_containers_in_pod(types.UID("u"), "dead")
    assert deleted == [("dead", status, all_of_them)]


# ---- update_runtime_up ----


def conditions(**ready: bool) -> kubecontainer.RuntimeStatus:
    return kubecontainer.RuntimeStatus(
        conditions=[kubecontainer.RuntimeCondition(type=name, status=status) for name, status in ready.items()]
    )


@pytest.mark.parametrize(
    ("answer", "runtime_error", "network_error", "synced"),
    [
        (conditions(RuntimeReady=True, NetworkReady=True), None, None, True),
        (conditions(RuntimeReady=True, NetworkReady=False), None, "network not ready", True),
        (conditions(RuntimeReady=False, NetworkReady=True), "container runtime not ready", None, False),
        (conditions(RuntimeReady=True), None, "network not ready", True),
        (conditions(), "container runtime not ready", "network not ready", False),
        (RuntimeError("no socket"), "status check may not have completed", None, False),
    ],
)
def test_update_runtime_up(
    test_kubelet: TestKubelet,
    answer: kubecontainer.RuntimeStatus | Exception,
    runtime_error: str | None,
    network_error: str | None,
    synced: bool,
) -> None:
    if isinstance(answer, Exception):
        test_kubelet.runtime.status_err = answer
    else:
        test_kubelet.runtime.runtime_status = answer
    kubelet = test_kubelet.kubelet
    kubelet.update_runtime_up(test_kubelet.ctx)
    errors, network = str(kubelet.runtime_state.runtime_errors()), str(kubelet.runtime_state.network_errors())
    assert (runtime_error or "None") in errors
    assert (network_error or "None") in network
    assert kubelet.runtime_modules_started == synced


def test_silent_runtime_counts_as_down_after_a_while(test_kubelet: TestKubelet) -> None:
    kubelet, runtime = test_kubelet.kubelet, test_kubelet.runtime
    runtime.runtime_status = conditions(RuntimeReady=True, NetworkReady=True)
    kubelet.update_runtime_up(test_kubelet.ctx)
    runtime.status_err = RuntimeError("no answer")
    test_kubelet.clock.step(29)
    kubelet.update_runtime_up(test_kubelet.ctx)
    assert kubelet.runtime_state.runtime_errors() is None
    test_kubelet.clock.step(1)
    assert "container runtime is down" in str(kubelet.runtime_state.runtime_errors())
    runtime.status_err = None
    kubelet.update_runtime_up(test_kubelet.ctx)
    assert kubelet.runtime_state.runtime_errors() is None


def test_modules_that_need_the_runtime_are_started_once(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[None] = []
    kubelet = test_kubelet.kubelet
    monkeypatch.setattr(kubelet, "initialize_runtime_dependent_modules", lambda ctx: started.append(None))
    test_kubelet.runtime.runtime_status = conditions(RuntimeReady=True, NetworkReady=True)
    for _ in range(3):
        kubelet.update_runtime_up(test_kubelet.ctx)
    assert started == [None]


@pytest.mark.parametrize("fault", [ValueError("reserved more than there is"), OSError("no cgroup")])
def test_modules_that_do_not_start_end_the_kubelet(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    kubelet = test_kubelet.kubelet

    def initialize(ctx: golang.Context) -> None:
        raise fault

    monkeypatch.setattr(kubelet, "initialize_runtime_dependent_modules", initialize)
    test_kubelet.runtime.runtime_status = conditions(RuntimeReady=True, NetworkReady=True)
    for _ in range(2):
        kubelet.update_runtime_up(test_kubelet.ctx)
    assert not kubelet.runtime_modules_started
    assert kubelet.failed.try_recv()[0] is fault
    assert not kubelet.failed.try_recv()[2], "the kubelet reports the failure only once"


@pytest.mark.parametrize("fault", [golang.ThreadError("no thread"), MemoryError()])
def test_modules_for_which_there_is_no_room_are_tried_again(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    kubelet = test_kubelet.kubelet
    faults = [fault]
    attempts: list[golang.Context] = []

    def initialize(ctx: golang.Context) -> None:
        attempts.append(ctx)
        if faults:
            raise faults.pop()

    monkeypatch.setattr(kubelet, "initialize_runtime_dependent_modules", initialize)
    test_kubelet.runtime.runtime_status = conditions(RuntimeReady=True, NetworkReady=True)
    kubelet.update_runtime_up(test_kubelet.ctx)
    assert not kubelet.runtime_modules_started
    assert attempts[0].err() is not None, "the failed attempt must be cancelled"
    kubelet.update_runtime_up(test_kubelet.ctx)
    assert kubelet.runtime_modules_started
    assert attempts[1].err() is None


def test_pods_keep_their_resources_while_they_could_run(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, given = test_kubelet.kubelet, []

    def start(ctx: golang.Context, node: v1.Node, active_pods: object, could_run: object, *more: object) -> None:
        given.append((active_pods, could_run))
        raise OSError("that is all the test wants to know")

    monkeypatch.setattr(kubelet.container_manager, "start", start)
    with pytest.raises(OSError, match="that is all"):
        kubelet.initialize_runtime_dependent_modules(test_kubelet.ctx)
    assert given == [(kubelet.get_active_pods, kubelet.pod_workers.could_have_running_containers)]


def test_no_plugin_registers_before_all_modules_have_started(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet = test_kubelet.kubelet
    registering: list[golang.Context] = []

    def refuse(ctx: golang.Context) -> None:
        raise golang.ThreadError("no thread")

    for module in (kubelet.container_manager, kubelet.eviction_manager, kubelet.container_log_manager):
        monkeypatch.setattr(module, "start", lambda *args: None)
    monkeypatch.setattr(kubelet.plugin_manager, "run", registering.append)
    monkeypatch.setattr(kubelet, "shutdown_manager", nodeshutdown.ManagerStub())
    monkeypatch.setattr(kubelet.shutdown_manager, "start", refuse)
    with golang.ThreadGroup() as group, pytest.raises(golang.ThreadError):
        kubelet.initialize_runtime_dependent_modules(test_kubelet.ctx)
    assert group.join(30) == []
    assert registering == []


def test_wait_for_the_node_ends_with_its_context(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)

    def get_node(ctx: golang.Context) -> v1.Node:
        cancel()
        raise LookupError("not registered yet")

    monkeypatch.setattr(test_kubelet.kubelet, "get_node", get_node)
    test_kubelet.kubelet.fast_static_pods_registration(ctx)


# ---- Steps of pod workers ----


def sync(test_kubelet: TestKubelet, pod: v1.Pod, *now: kubecontainer.Status) -> SyncPodResult:
    pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, ips=["10.0.0.1"], container_statuses=list(now))
    return test_kubelet.kubelet.sync_pod(test_kubelet.ctx, kubetypes.SYNC_POD_CREATE, pod, None, pod_status)


def ended(exit_code: int) -> kubecontainer.Status:
    return kubecontainer.Status(id=CONTAINER, name="c", state=State.EXITED, exit_code=exit_code)


def test_sync_pod(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    assert sync(test_kubelet, pod) == SyncPodResult(), "the runtime did nothing"
    assert test_kubelet.runtime.started_pods == [pod.metadata.uid]
    assert test_kubelet.volumes.waits == [("mount", pod.metadata.uid)]
    assert Path(test_kubelet.kubelet.get_pod_dir(pod.metadata.uid), "volumes").is_dir()
    status = test_kubelet.status_of(pod.metadata.uid)
    assert (status.phase, status.pod_ip) == ("Pending", "10.0.0.1")


def test_sync_that_did_something_is_looked_at_at_once(test_kubelet: TestKubelet) -> None:
    result = kubecontainer.PodSyncResult()
    result.add_sync_result(kubecontainer.SyncResult(kubecontainer.START_CONTAINER, "c"))
    test_kubelet.runtime.sync_results = result
    pod = new_pod("p")
    after = sync(test_kubelet, pod).post_sync
    assert test_kubelet.pleg.relists == []
    assert after is not None
    after()
    assert test_kubelet.pleg.relists == [pod.metadata.uid]


def test_pod_is_synced_out_of_turn_only_once_the_sync_loop_has_admitted_it(test_kubelet: TestKubelet) -> None:
    kubelet, pod = test_kubelet.kubelet, new_pod("p")
    kubelet.pod_manager.add_pod(pod)
    test_kubelet.workers.unknown.add(pod.metadata.uid)
    kubelet.retry_pod_now(pod)
    assert test_kubelet.workers.updates == []
    test_kubelet.workers.unknown.clear()
    kubelet.retry_pod_now(pod)
    assert test_kubelet.workers.update_types() == [("SYNC", "p")]


def test_container_is_probed_once_its_status_is_known(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is triggered earlier finds nothing to probe, and waits for its next period."""
    known: list[list[bool]] = []

    def trigger(worker: Worker) -> None:
        status = test_kubelet.status_of(worker.pod.metadata.uid)
        known.append([each.state.running is not None for each in status.container_statuses])

    monkeypatch.setattr(Worker, "trigger", trigger)
    pod = new_pod("p")
    pod.spec.containers[0].readiness_probe = v1.Probe(period_seconds=1000)
    sync(test_kubelet, pod)
    now = kubecontainer.Status(id=CONTAINER, name="c", state=State.RUNNING, started_at=test_kubelet.clock.now())
    sync(test_kubelet, pod, now)
    assert known == [[True]]


@pytest.mark.parametrize(("policy", "code", "terminal"), [("Never", 1, True), ("Never", 0, True), ("Always", 1, False)])
def test_pod_that_has_ended_is_not_started_again(
    test_kubelet: TestKubelet, policy: str, code: int, terminal: bool
) -> None:
    pod = new_pod("p", restart_policy=policy)
    assert sync(test_kubelet, pod, ended(code)).is_terminal == terminal
    assert test_kubelet.runtime.started_pods == ([] if terminal else [pod.metadata.uid])


@pytest.mark.parametrize("host_network", [True, False])
def test_pod_waits_for_its_network(test_kubelet: TestKubelet, host_network: bool) -> None:
    test_kubelet.kubelet.runtime_state.set_network_state(RuntimeError("no CNI"))
    pod = new_pod("p", host_network=host_network)
    if host_network:
        sync(test_kubelet, pod)
        assert test_kubelet.events() == []
    else:
        with pytest.raises(NetworkNotReadyError, match="network is not ready: no CNI"):
            sync(test_kubelet, pod)
        assert test_kubelet.events() == ["Warning NetworkNotReady network is not ready: no CNI"]
    assert bool(test_kubelet.runtime.started_pods) == host_network


def test_failed_mount_is_an_event(test_kubelet: TestKubelet) -> None:
    test_kubelet.volumes.err = RuntimeError("unmounted volumes=[v]")
    with pytest.raises(RuntimeError, match="unmounted volumes"):
        sync(test_kubelet, new_pod("p"))
    assert test_kubelet.events() == ["Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v]"]
    assert test_kubelet.runtime.started_pods == []


def test_mount_that_takes_too_long_is_an_event(test_kubelet: TestKubelet) -> None:
    test_kubelet.volumes.err = TimeoutError("unmounted volumes=[v]: timed out")
    with pytest.raises(TimeoutError):
        sync(test_kubelet, new_pod("p"))
    assert test_kubelet.events() == [
        "Warning FailedMount Unable to attach or mount volumes: unmounted volumes=[v]: timed out"
    ]


def test_pod_whose_volumes_are_too_many_for_the_node_is_refused(test_kubelet: TestKubelet) -> None:
    test_kubelet.volumes.err = volumemanager.VolumeAttachLimitExceededError("unmounted volumes=[v]")
    pod = new_pod("p")
    assert sync(test_kubelet, pod) == SyncPodResult(is_terminal=True)
    assert test_kubelet.runtime.started_pods == []
    message = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v]"
    assert test_kubelet.events() == [f"Warning VolumeAttachmentLimitExceeded {message}"]
    status = test_kubelet.status_of(pod.metadata.uid)
    assert (status.phase, status.reason) == (v1.POD_FAILED, "VolumeAttachmentLimitExceeded")


def test_cancelled_mount_is_no_event(test_kubelet: TestKubelet) -> None:
    test_kubelet.volumes.err = golang.Canceled()
    with pytest.raises(golang.Canceled):
        sync(test_kubelet, new_pod("p"))
    assert test_kubelet.events() == []


def test_directories_that_cannot_be_made_are_an_event(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    Path(test_kubelet.kubelet.get_pod_dir(pod.metadata.uid)).write_text("in the way")
    with pytest.raises(OSError, match="Not a directory"):
        sync(test_kubelet, pod)
    (event,) = test_kubelet.events()
    assert event.startswith("Warning Failed error making pod data directories: ")


@pytest.mark.parametrize(
    ("policy", "running", "kill_fails", "killed", "made"),
    [
        ("Always", False, False, False, True),
        ("Always", True, False, True, True),
        ("Never", True, False, True, False),
        ("Never", True, True, True, True),
    ],
)
def test_containers_outside_of_their_cgroup_are_stopped(
    test_kubelet: TestKubelet,
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
    running: bool,
    kill_fails: bool,
    killed: bool,
    made: bool,
) -> None:
    cgroups = FakePodContainerManager()
    monkeypatch.setattr(test_kubelet.kubelet.container_manager, "new_pod_container_manager", lambda: cgroups)
    pod = new_pod("p", restart_policy=policy)
    now = [kubecontainer.Status(id=CONTAINER, name="c", state=State.RUNNING)] if running else []
    if kill_fails:
        test_kubelet.runtime.err = RuntimeError("runtime is away")
    test_kubelet.runtime.sync_results = kubecontainer.PodSyncResult()
    sync(test_kubelet, pod, *now)
    assert test_kubelet.runtime.killed_pods == ([pod.metadata.uid] if killed else [])
    assert cgroups.made == ([pod.metadata.uid] if made else [])
    if made:
        sync(test_kubelet, pod, *now)
        assert len(test_kubelet.runtime.killed_pods) == killed, "a pod in its cgroup keeps running"


def test_pod_is_not_started_in_a_cgroup_that_is_being_removed(test_kubelet: TestKubelet) -> None:
    """The cgroup belonged to an earlier pod with the same UID, whose processes are being killed."""
    pod, removed = new_pod("p"), threading.Event()
    cleanup = golang.go(removed.wait, 30, name="cgroup-cleanup-uid-p")
    test_kubelet.kubelet.cgroup_cleanups[pod.metadata.uid] = cleanup
    with pytest.raises(PodCgroupError, match="cgroup of an earlier pod"):
        sync(test_kubelet, pod)
    assert test_kubelet.runtime.started_pods == []
    (event,) = test_kubelet.events()
    assert event.startswith("Warning FailedCreatePodContainer the cgroup of an earlier pod")
    removed.set()
    cleanup.join(30)
    sync(test_kubelet, pod)
    assert test_kubelet.runtime.started_pods == [pod.metadata.uid]


def test_pod_whose_containers_were_removed_to_restart_is_synced_at_once(test_kubelet: TestKubelet) -> None:
    codes = v1.ContainerRestartRuleOnExitCodes(operator="In", values=[42])
    rule = v1.ContainerRestartRule(action="RestartAllContainers", exit_codes=codes)
    container = v1.Container(name="c", restart_policy="Never", restart_policy_rules=[rule])
    result = kubecontainer.PodSyncResult()
    result.add_sync_result(kubecontainer.SyncResult(kubecontainer.REMOVE_CONTAINER, "c"))
    test_kubelet.runtime.sync_results = result
    pod = new_pod("p", containers=[container], restart_policy="Always")
    sync(test_kubelet, new_pod("other", restart_policy="Always"), ended(42))
    assert test_kubelet.workers.update_types() == []
    sync(test_kubelet, pod, ended(42))
    assert test_kubelet.workers.update_types() == [("UPDATE", "p")]


def test_pod_that_is_added_again_does_not_stand_in_its_own_way(test_kubelet: TestKubelet) -> None:
    admit = AdmitHandler()
    test_kubelet.kubelet.allocation_manager.add_pod_admit_handlers([admit])
    for _ in range(2):
        test_kubelet.kubelet.handle_pod_additions(test_kubelet.ctx, [new_pod("p")])
    assert admit.asked == [("p", []), ("p", [])]


def test_failed_start_is_raised_and_remembered(test_kubelet: TestKubelet) -> None:
    result = kubecontainer.PodSyncResult()
    start = kubecontainer.SyncResult(kubecontainer.START_CONTAINER, "c")
    start.fail(RuntimeError("ImagePullBackOff"), "back-off pulling")
    result.add_sync_result(start)
    test_kubelet.runtime.sync_results = result
    pod = new_pod("p")
    with pytest.raises(kubecontainer.SyncErrors) as raised:
        sync(test_kubelet, pod)
    assert "ImagePullBackOff" in str(raised.value)
    reason = test_kubelet.kubelet.reason_cache.get(pod.metadata.uid, "c")
    assert reason is not None
    assert reason.message == "back-off pulling"


def terminate(test_kubelet: TestKubelet, pod: v1.Pod, grace: int | None = None) -> None:
    now = kubecontainer.Status(id=CONTAINER, name="c", state=State.RUNNING)
    pod_status = kubecontainer.PodStatus(
        id=pod.metadata.uid, name="p", namespace="ns", ips=["10.0.0.1"], container_statuses=[now]
    )
    test_kubelet.kubelet.sync_terminating_pod(test_kubelet.ctx, pod, pod_status, grace, None)


def test_sync_terminating_pod(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    test_kubelet.runtime.pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, container_statuses=[ended(137)])
    terminate(test_kubelet, pod)
    assert test_kubelet.runtime.killed_pods == [pod.metadata.uid]
    status = test_kubelet.status_of(pod.metadata.uid)
    assert status.phase == "Failed"
    found = status.container_statuses[0].state.terminated
    assert found is not None
    assert found.exit_code == 137, "the exit code is known before the container is removed"
    assert status.pod_ip == "10.0.0.1", "the status keeps an address that the runtime has forgotten"


def test_the_log_tells_of_the_syncs_of_a_pod_that_ends(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pod = new_pod("p")
    test_kubelet.runtime.pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, container_statuses=[ended(137)])
    left = [True, False]
    monkeypatch.setattr(test_kubelet.kubelet, "pod_volumes_exist", lambda uid: left.pop(0))
    monkeypatch.setattr(mount_utils, "wait_until", lambda ctx, condition: (condition(), condition()))
    klog.set_verbosity(4)
    try:
        terminate(test_kubelet, pod)
        test_kubelet.kubelet.sync_terminated_pod(test_kubelet.ctx, pod, test_kubelet.runtime.pod_status)
        test_kubelet.kubelet.sync_terminating_runtime_pod(test_kubelet.ctx, runtime_pod(new_pod("orphan")).pod)
    finally:
        klog.set_verbosity(0)
    logged = [line.partition("] ")[2] for line in capfd.readouterr().err.splitlines()]
    told = [line.split('"')[1] for line in logged if "pod=" in line]
    assert [each for each in told if "enter" in each or "exit" in each] == [
        f"{sync} {edge}"
        for sync in ("SyncTerminatingPod", "SyncTerminatedPod", "SyncTerminatingRuntimePod")
        for edge in ("enter", "exit")
    ]
    assert any('"ExitCode":137' in line for line in logged if line.startswith('"Post-termination container state"'))
    assert told.count("Pod is terminated, but some volumes have not been cleaned up") == 1


def test_pod_that_the_runtime_has_forgotten_is_terminated(test_kubelet: TestKubelet) -> None:
    terminate(test_kubelet, new_pod("p"))
    assert test_kubelet.runtime.called_functions.count("get_pod_status") == 1


def test_pod_has_not_ended_before_its_claims_are_given_back(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod, manager = new_pod("p"), test_kubelet.kubelet.container_manager
    held = {pod.metadata.uid}

    def unprepare(ctx: golang.Context, pod: v1.Pod) -> None:
        assert test_kubelet.runtime.killed_pods
        raise RuntimeError("driver is away")

    monkeypatch.setattr(manager, "unprepare_dynamic_resources", unprepare)
    monkeypatch.setattr(manager, "pod_might_need_to_unprepare_resources", held.__contains__)
    test_kubelet.runtime.pod_list = [runtime_pod(pod)]
    with pytest.raises(RuntimeError, match="driver is away"):
        terminate(test_kubelet, pod)
    status = test_kubelet.status_of(pod.metadata.uid)
    assert status.phase != "Failed"
    assert test_kubelet.kubelet.pod_could_have_running_containers(pod)
    held.clear()
    assert not test_kubelet.kubelet.pod_could_have_running_containers(pod)


def test_runtime_that_says_killed_and_runs_on_is_not_believed(test_kubelet: TestKubelet) -> None:
    still = kubecontainer.Status(id=CONTAINER, name="c", state=State.RUNNING)
    test_kubelet.runtime.pod_status = kubecontainer.PodStatus(container_statuses=[still])
    with pytest.raises(
        StillRunningError, match="detected running containers after a successful KillPod, CRI violation"
    ):
        terminate(test_kubelet, new_pod("p"))


def test_failed_kill_is_an_event(test_kubelet: TestKubelet) -> None:
    test_kubelet.runtime.err = RuntimeError("runtime is away")
    with pytest.raises(RuntimeError, match="runtime is away"):
        terminate(test_kubelet, new_pod("p"))
    assert test_kubelet.events() == ["Warning FailedKillPod error killing pod: runtime is away"]


def test_cancelled_kill_is_no_event(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime manager reports each container that could not be killed, whatever the cause is."""
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)

    def kill_pod(*args: object) -> None:
        cancel()
        raise kubecontainer.SyncErrors([RuntimeError("context canceled")])

    monkeypatch.setattr(test_kubelet.runtime, "kill_pod", kill_pod)
    with pytest.raises(golang.Canceled):
        test_kubelet.kubelet.sync_terminating_pod(ctx, new_pod("p"), kubecontainer.PodStatus(), None, None)
    assert test_kubelet.events() == []


def test_kill_ends_with_the_context_of_its_sync(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The context is cancelled when the grace period becomes shorter."""
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    seen: list[Exception | None] = []

    def kill_pod(ctx: golang.Context, *args: object) -> None:
        cancel()
        seen.append(ctx.err())

    monkeypatch.setattr(test_kubelet.runtime, "kill_pod", kill_pod)
    test_kubelet.kubelet.sync_terminating_pod(ctx, new_pod("p"), kubecontainer.PodStatus(), None, None)
    assert [type(err) for err in seen] == [golang.Canceled]


def test_orphan_of_the_runtime_is_killed_within_a_second(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills: list[tuple[Any, ...]] = []
    monkeypatch.setattr(test_kubelet.runtime, "kill_pod", lambda *args: kills.append(args[2:]))
    orphan = runtime_pod(new_pod("orphan")).pod
    test_kubelet.kubelet.sync_terminating_runtime_pod(test_kubelet.ctx, orphan)
    assert kills == [(orphan, 1)]


def test_sync_terminated_pod(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", restart_policy="Always")
    pod_status = kubecontainer.PodStatus(id=pod.metadata.uid, container_statuses=[ended(0)])
    test_kubelet.kubelet.sync_terminated_pod(test_kubelet.ctx, pod, pod_status)
    assert test_kubelet.volumes.waits == [("unmount", pod.metadata.uid)]
    status = test_kubelet.status_of(pod.metadata.uid)
    assert status.phase == "Succeeded"


def test_pod_with_resource_claims_is_refused(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p", resource_claims=[v1.PodResourceClaim(name="gpu")])
    with pytest.raises(ValueError, match="resource claims are not supported"):
        test_kubelet.kubelet.prepare_dynamic_resources(test_kubelet.ctx, pod)
    test_kubelet.kubelet.prepare_dynamic_resources(test_kubelet.ctx, new_pod("other"))


def test_sandbox_is_shown_before_images_are_pulled(test_kubelet: TestKubelet) -> None:
    pod = new_pod("p")
    test_kubelet.kubelet.on_pod_sandbox_ready(test_kubelet.ctx, pod)
    status = test_kubelet.status_of(pod.metadata.uid)
    assert [(c.type, c.status) for c in status.conditions] == [("PodReadyToStartContainers", "True")]
    assert pod.status.conditions == []


# ---- run ----


def test_run_ends_with_its_context_and_leaves_nothing_behind(test_kubelet: TestKubelet) -> None:
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    cancel()
    test_kubelet.kubelet.run(ctx, golang.Channel(1))
    for path in ("plugins", "plugins_registry", "pod-resources", "checkpoints", "pods"):
        assert Path(test_kubelet.kubelet.get_root_dir(), path).is_dir()


class _HealthChecker:
    """Record the checkers."""

    def __init__(self) -> None:
        self.checks: dict[str, Callable[[], object]] = {}

    def set_health_checkers(
        self, sync_loop_health_check: Callable[[], object], checkers: Iterable[healthz.HealthChecker]
    ) -> None:
        self.checks = {"syncloop": sync_loop_health_check} | {checker.name: checker.check for checker in checkers}


def test_run_has_systemd_told_of_the_sync_loop_and_of_the_container_manager(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet, health_checker = test_kubelet.kubelet, _HealthChecker()
    monkeypatch.setattr(kubelet, "health_checker", health_checker)
    plugins = healthz.HealthChecker("device-plugin", lambda: None)
    monkeypatch.setattr(kubelet.container_manager, "get_health_checkers", lambda: [plugins])
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    cancel()
    kubelet.run(ctx, golang.Channel(1))
    assert list(health_checker.checks) == ["syncloop", "device-plugin"]
    health_checker.checks["syncloop"]()
    kubelet.sync_loop_monitor = kubelet.clock.steady() - datetime.timedelta(hours=1)
    with pytest.raises(healthz.UnhealthyError, match="sync Loop took longer than expected"):
        health_checker.checks["syncloop"]()


def test_run_says_which_directory_cannot_be_made(test_kubelet: TestKubelet) -> None:
    Path(test_kubelet.kubelet.get_plugins_dir()).write_text("in the way")
    with pytest.raises(OSError, match="plugins"):
        test_kubelet.kubelet.run(test_kubelet.ctx, golang.Channel(1))
    (event,) = test_kubelet.events()
    assert event.startswith("Warning KubeletSetupFailed")


# ---- Resizes ----


def sized_pod(name: str, cpu: str, generation: int = 1) -> v1.Pod:
    requests = {"cpu": resource.must_parse(cpu)}
    main = v1.Container(name="c", image="i", resources=v1.ResourceRequirements(requests=requests))
    pod = new_pod(name, containers=[main])
    pod.metadata.generation = generation
    return pod


def resize_conditions(test_kubelet: TestKubelet, name: str) -> list[str]:
    return [c.type for c in test_kubelet.status_manager.get_pod_resize_conditions(types.UID(f"uid-{name}"))]


def test_update_that_resizes_is_granted(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.handle_pod_additions(test_kubelet.ctx, [sized_pod("p", "100m")])
    with metricstesting.moves(metrics.CONTAINER_REQUESTED_RESIZES.labels("cpu", "requests", "increase")):
        kubelet.handle_pod_updates(test_kubelet.ctx, [sized_pod("p", "200m", 2)])
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"]
    assert test_kubelet.workers.update_types() == [("CREATE", "p"), ("SYNC", "p"), ("UPDATE", "p")]
    assert test_kubelet.pleg.relists == ["uid-p"]
    allocated = kubelet.allocation_manager.get_container_resource_allocation(types.UID("uid-p"), "c")
    assert allocated is not None and str(allocated.requests["cpu"]) == "200m"
    assert [event.split(":")[0] for event in test_kubelet.events()] == ["Normal ResizeStarted Pod resize started"]


def test_update_that_resizes_waits(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    admit = AdmitHandler()
    kubelet.allocation_manager.add_pod_admit_handlers([admit])
    kubelet.handle_pod_additions(test_kubelet.ctx, [sized_pod("p", "100m"), sized_pod("other", "100m")])
    admit.refused = ("p",)
    kubelet.handle_pod_updates(test_kubelet.ctx, [sized_pod("p", "200m", 2)])
    assert resize_conditions(test_kubelet, "p") == ["PodResizePending"]

    # The status of another pod shrinks, so there may be room now.
    admit.refused = ()
    other = sized_pod("other", "100m")
    shown = v1.ContainerStatus(name="c", allocated_resources={"cpu": resource.must_parse("300m")})
    shown.resources = v1.ResourceRequirements(requests={"cpu": resource.must_parse("300m")})
    other.status.container_statuses = [shown]
    kubelet.handle_pod_reconcile(test_kubelet.ctx, [other])
    assert resize_conditions(test_kubelet, "p") == ["PodResizePending"]
    kubelet.handle_pod_reconcile(test_kubelet.ctx, [sized_pod("other", "100m")])
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"]


@pytest.mark.parametrize("has", [True, False])
def test_update_that_needs_a_feature_of_the_node(test_kubelet: TestKubelet, has: bool) -> None:
    kubelet = test_kubelet.kubelet
    pods = [sized_pod("p", "100m") for _ in range(2)]
    for pod, cpu in zip(pods, ("1", "2"), strict=True):
        pod.spec.resources = v1.ResourceRequirements(requests={"cpu": resource.must_parse(cpu)})
    gate = features.IN_PLACE_POD_LEVEL_RESOURCES_VERTICAL_SCALING
    with set_feature_gate_during_test(features.feature_gate, gate, has):
        kubelet.handle_pod_additions(test_kubelet.ctx, pods[:1])
        test_kubelet.events()
        kubelet.handle_pod_updates(test_kubelet.ctx, pods[1:])
    text = f"Warning FailedNodeDeclaredFeaturesCheck Pod requires node features that are not available: {gate}"
    assert (text in test_kubelet.events()) is not has


@pytest.mark.parametrize("how", ["removed", "ended"])
def test_pods_that_go_make_room(test_kubelet: TestKubelet, how: str) -> None:
    kubelet = test_kubelet.kubelet
    admit = AdmitHandler()
    kubelet.allocation_manager.add_pod_admit_handlers([admit])
    other = sized_pod("other", "100m")
    kubelet.handle_pod_additions(test_kubelet.ctx, [sized_pod("p", "100m"), other])
    admit.refused = ("p",)
    kubelet.handle_pod_updates(test_kubelet.ctx, [sized_pod("p", "200m", 2)])
    admit.refused = ()
    if how == "removed":
        kubelet.handle_pod_removes(test_kubelet.ctx, [other])
    else:
        ended = v1.deepcopy(other)
        ended.status.phase = "Succeeded"
        kubelet.handle_pod_reconcile(test_kubelet.ctx, [ended])
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"]


def test_reverted_resize_waits_no_more(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    admit = AdmitHandler()
    kubelet.allocation_manager.add_pod_admit_handlers([admit])
    kubelet.handle_pod_additions(test_kubelet.ctx, [sized_pod("p", "100m")])
    admit.refused = ("p",)
    kubelet.handle_pod_updates(test_kubelet.ctx, [sized_pod("p", "200m", 2)])
    kubelet.handle_pod_updates(test_kubelet.ctx, [sized_pod("p", "100m", 3)])
    assert resize_conditions(test_kubelet, "p") == []


def test_resize_that_waited_when_the_kubelet_ended(test_kubelet: TestKubelet) -> None:
    kubelet = test_kubelet.kubelet
    kubelet.allocation_manager.set_allocated_resources(sized_pod("p", "100m"))
    kubelet.handle_pod_additions(test_kubelet.ctx, [sized_pod("p", "200m", 2)])
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"]


def test_resize_of_a_pod_that_could_not_be_read_in_full(test_kubelet: TestKubelet) -> None:
    kubelet, wants = test_kubelet.kubelet, sized_pod("p", "200m", 2)
    kubelet.allocation_manager.set_allocated_resources(sized_pod("p", "100m"))
    kubelet.handle_pod_additions(test_kubelet.ctx, [v1.PartialPod(metadata=wants.metadata)])
    allocated = kubelet.allocation_manager.get_container_resource_allocation(types.UID("uid-p"), "c")
    assert allocated is not None and str(allocated.requests["cpu"]) == "100m"
    kubelet.handle_pod_updates(test_kubelet.ctx, [wants])
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"]


def test_resize_conditions_are_known_before_a_worker_begins(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = sized_pod("p", "100m")
    pod.status.conditions = [v1.PodCondition(type=v1.POD_RESIZE_PENDING, status=v1.CONDITION_TRUE, reason="Deferred")]
    known: list[list[str]] = []
    monkeypatch.setattr(
        test_kubelet.workers, "update_pod", lambda *args: known.append(resize_conditions(test_kubelet, "p"))
    )
    test_kubelet.kubelet.handle_pod_additions(test_kubelet.ctx, [pod])
    assert known == [["PodResizePending"]]


def test_sync_shows_how_far_a_resize_is(test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch) -> None:
    kubelet, runtime = test_kubelet.kubelet, test_kubelet.runtime
    pod = sized_pod("p", "200m", 2)
    kubelet.pod_manager.add_pod(pod)

    def sync(in_progress: bool) -> None:
        monkeypatch.setattr(runtime, "is_pod_resize_in_progress", lambda pod, status: in_progress)
        kubelet._note_resize_progress(pod, kubecontainer.PodStatus(id=types.UID("uid-p")))

    sync(in_progress=True)
    result = kubecontainer.PodSyncResult()
    failed = kubecontainer.SyncResult(kubecontainer.RESIZE_POD_IN_PLACE, "p")
    failed.fail(kubecontainer.ErrResizePodInPlace(), "cannot")
    result.add_sync_result(failed)
    for _ in range(2):
        kubelet._note_resize_errors(pod, result)
    (condition,) = test_kubelet.status_manager.get_pod_resize_conditions(types.UID("uid-p"))
    assert (condition.reason, condition.message, condition.observed_generation) == ("Error", "cannot", 2)
    sync(in_progress=False)
    assert resize_conditions(test_kubelet, "p") == []
    told = [event.split(":")[0] for event in test_kubelet.events()]
    assert told == ["Warning ResizeError Pod resize error", "Normal ResizeCompleted Pod resize completed"]
    sync(in_progress=False)
    assert test_kubelet.events() == []
    test_kubelet.status_manager.set_pod_resize_in_progress_condition(types.UID("uid-p"), "", "", 3)
    sync(in_progress=False)
    assert resize_conditions(test_kubelet, "p") == ["PodResizeInProgress"], (
        "the resize was allocated after the sync began"
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [("0", "1", "add"), ("1", "0", "remove"), ("1", "2", "increase"), ("2", "1", "decrease"), ("1", "1000m", "")],
)
def test_resize_operation_for_resources(old: str, new: str, expected: str) -> None:
    got = kubelet_resize.resize_operation_for_resources(resource.must_parse(new), resource.must_parse(old))
    assert got == expected


@pytest.fixture
def set_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def set_to(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield set_to
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(("zone", "offset"), [("UTC0", "Z"), ("JST-9", "+09:00")])
def test_checkpoint_container(
    test_kubelet: TestKubelet, set_zone: Callable[[str], None], zone: str, offset: str
) -> None:
    set_zone(zone)
    pod = new_pod("p")
    running = kubecontainer.Container(id=kubecontainer.ContainerID("test", "id-of-c"), name="c")
    test_kubelet.runtime.pod_list = [runtime_pod(pod, running)]
    kubelet, options = test_kubelet.kubelet, runtimeapi.CheckpointContainerRequest(timeout=7)
    kubelet.checkpoint_container(test_kubelet.ctx, pod.metadata.uid, "p_ns", "c", options)
    made = f"{kubelet.clock.now().astimezone():%Y-%m-%dT%H:%M:%S}{offset}"
    assert options.location == f"{kubelet.get_checkpoints_dir()}/checkpoint-p_ns-c-{made}.tar"
    assert (options.container_id, options.timeout) == ("id-of-c", 7)
    assert "checkpoint_container" in test_kubelet.runtime.called_functions

    with pytest.raises(LookupError, match="container other not found"):
        kubelet.checkpoint_container(test_kubelet.ctx, pod.metadata.uid, "p_ns", "other", options)


@pytest.mark.parametrize("has_figures", [True, False])
def test_root_cgroup_without_figures_is_told_of(
    test_kubelet: TestKubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, has_figures: bool
) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: True)
    monkeypatch.setattr(util, "CGROUP_ROOT", str(tmp_path))
    monkeypatch.setattr(klog._Settings, "verbosity", 2)
    if has_figures:
        (tmp_path / "cpu.stat").touch()
    test_kubelet.kubelet.cgroup_version_check()
    assert (cm.CGROUP_V2_KERNEL_WARNING in log.getvalue()) != has_figures
