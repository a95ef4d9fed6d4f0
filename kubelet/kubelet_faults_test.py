"""Test that a failure for one pod of an event neither ends the sync loop nor affects other pods."""

from __future__ import annotations

import io
from typing import Any

import pytest

from kubelet import container as kubecontainer
from kubelet import eviction, lifecycle, pleg
from kubelet import types as kubetypes
from kubelet.allocation import AllocatedPod
from kubelet.apis.podresources import server as podresources_server
from kubelet.config.testing import FakeSourcesReady
from kubelet.kubelet_pod_resources_api import POD_RESOURCES_RETRY_PERIOD
from kubelet.pod_workers import SyncPodResult, UpdatePodOptions
from kubelet.prober import results
from kubelet.testing import TestKubelet, new_pod, runtime_pod
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.util.runtime.testing import FAILURES, failing_once, raising

# The PLEG stores the last of these errors when the runtime does not respond in time.
failures = pytest.mark.parametrize("err", [*FAILURES, golang.DeadlineExceeded()], ids=lambda err: type(err).__name__)


@pytest.fixture
def test_kubelet(test_kubelet: TestKubelet) -> TestKubelet:
    """Provide a kubelet whose sources have all reported."""
    test_kubelet.kubelet.sources_ready = FakeSourcesReady()
    return test_kubelet


class _Loop:
    """Run iterations of the sync loop with the kubelet's own handlers."""

    def __init__(self, test_kubelet: TestKubelet) -> None:
        self.test_kubelet = test_kubelet
        self.kubelet = test_kubelet.kubelet
        self.config_ch: golang.Channel[kubetypes.PodUpdate] = golang.Channel(10)
        self.sync_ch: golang.Channel[Any] = golang.Channel(1)

    def config(self, op: kubetypes.PodOperation, *names: str) -> None:
        self.config_ch.send(kubetypes.PodUpdate(pods=[new_pod(name) for name in names], op=op, source="file"))
        self.iterate()

    def tick(self, seconds: float) -> None:
        self.test_kubelet.clock.step(seconds)
        self.sync_ch.send(None)
        self.iterate()

    def iterate(self) -> None:
        kubelet, channel = self.kubelet, self.test_kubelet.pleg.channel
        never: golang.Channel[Any] = golang.Channel(0)
        assert kubelet.sync_loop_iteration(self.test_kubelet.ctx, self.config_ch, kubelet, self.sync_ch, never, channel)


@pytest.fixture
def loop(test_kubelet: TestKubelet) -> _Loop:
    return _Loop(test_kubelet)


def _fail_once(monkeypatch: pytest.MonkeyPatch, where: Any, method: str, pod: str, err: Exception) -> None:
    """Make the method raise the error once for that pod."""
    monkeypatch.setattr(where, method, failing_once(getattr(where, method), err, pod))


@failures
def test_death_of_a_container_whose_pod_could_not_be_inspected(loop: _Loop, err: Exception) -> None:
    loop.config(kubetypes.ADD, "p")
    loop.kubelet.pod_cache.set(types.UID("uid-p"), None, err, loop.test_kubelet.clock.now())
    loop.test_kubelet.pleg.channel.send(
        pleg.PodLifecycleEvent(id=types.UID("uid-p"), type=pleg.CONTAINER_DIED, data="c")
    )
    loop.iterate()
    assert loop.test_kubelet.workers.update_types() == [("CREATE", "p"), ("SYNC", "p")]


@failures
def test_reconcile_of_an_evicted_pod_that_could_not_be_inspected(loop: _Loop, err: Exception) -> None:
    evicted, other = new_pod("evicted"), new_pod("other")
    evicted.status.phase, evicted.status.reason = v1.POD_FAILED, eviction.REASON
    other.spec.readiness_gates = [v1.PodReadinessGate(condition_type="gate")]
    other.status.conditions = [v1.PodCondition(type=v1.POD_READY, status=v1.CONDITION_TRUE)]
    loop.kubelet.pod_cache.set(types.UID("uid-evicted"), None, err, loop.test_kubelet.clock.now())
    update = kubetypes.PodUpdate(pods=[evicted, other], op=kubetypes.RECONCILE, source="api")
    loop.config_ch.send(update)
    loop.iterate()
    assert loop.test_kubelet.workers.update_types() == [("SYNC", "other")]


@failures
@pytest.mark.parametrize("op", [kubetypes.ADD, kubetypes.UPDATE, kubetypes.RECONCILE])
def test_pod_whose_event_failed_is_synced_later_and_the_others_at_once(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, op: kubetypes.PodOperation, err: Exception
) -> None:
    if op is not kubetypes.ADD:
        loop.config(kubetypes.ADD, "a", "bad", "z")
    monkeypatch.setattr("kubelet.status.need_to_reconcile_pod_readiness", lambda pod: True)
    loop.test_kubelet.workers.updates.clear()
    _fail_once(monkeypatch, loop.test_kubelet.workers, "update_pod", "uid-bad", err)
    loop.config(op, "a", "bad", "z")
    assert [name for _, name in loop.test_kubelet.workers.update_types()] == ["a", "z"]
    assert 'podUID="uid-bad"' in log.getvalue()
    loop.tick(11)
    assert loop.test_kubelet.workers.update_types()[2:] == [("SYNC", "bad")]


@failures
@pytest.mark.parametrize("op", [kubetypes.ADD, kubetypes.UPDATE, kubetypes.RECONCILE, kubetypes.REMOVE])
def test_event_that_the_pod_manager_could_not_note_is_not_lost(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, op: kubetypes.PodOperation, err: Exception
) -> None:
    """The source does not send the event again."""
    if op is not kubetypes.ADD:
        loop.config(kubetypes.ADD, "bad", "z")
    method = {kubetypes.ADD: "add_pod", kubetypes.REMOVE: "remove_pod"}.get(op, "update_pod")
    _fail_once(monkeypatch, loop.kubelet.pod_manager, method, "uid-bad", err)
    told = [new_pod("bad"), new_pod("z")]
    for pod in told:
        pod.metadata.labels["told"] = "yes"
    loop.config_ch.send(kubetypes.PodUpdate(told, op, "file"))
    loop.iterate()
    known = loop.kubelet.pod_manager.get_pods()
    assert all(pod.metadata.labels for pod in known)
    assert sorted(pod.metadata.name for pod in known) == ([] if op is kubetypes.REMOVE else ["bad", "z"])


@failures
def test_sync_that_failed_is_tried_again(loop: _Loop, monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    loop.config(kubetypes.ADD, "a", "bad", "z")
    loop.test_kubelet.workers.updates.clear()
    for name in ("a", "bad", "z"):
        loop.kubelet.work_queue.enqueue(types.UID(f"uid-{name}"), 0)
    _fail_once(monkeypatch, loop.test_kubelet.workers, "update_pod", "uid-bad", err)
    loop.tick(1)
    assert [name for _, name in loop.test_kubelet.workers.update_types()] == ["a", "z"]
    loop.tick(11)
    assert loop.test_kubelet.workers.update_types()[2:] == [("SYNC", "bad")]


@failures
def test_removal_that_failed_is_left_to_housekeeping(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    loop.config(kubetypes.ADD, "a", "bad", "z")
    loop.test_kubelet.workers.updates.clear()
    _fail_once(monkeypatch, loop.test_kubelet.workers, "update_pod", "uid-bad", err)
    loop.config(kubetypes.REMOVE, "a", "bad", "z")
    assert loop.test_kubelet.workers.update_types() == [("KILL", "a"), ("KILL", "z")]
    assert loop.kubelet.pod_manager.get_pods() == [], "housekeeping must find the worker of an orphan"


@failures
def test_pod_about_which_admission_failed_waits_and_is_admitted_by_its_worker(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    class Handler:
        def admit(self, attributes: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
            return lifecycle.PodAdmitResult(admit=True)

    handler = Handler()
    loop.kubelet.allocation_manager.add_pod_admit_handlers([handler])
    _fail_once(monkeypatch, handler, "admit", "uid-bad", err)
    loop.config(kubetypes.ADD, "bad", "z")
    assert sorted(loop.test_kubelet.workers.update_types()) == [("CREATE", "bad"), ("CREATE", "z")]
    assert "uid-bad" in loop.kubelet.waiting_pods
    status = kubecontainer.PodStatus(id=types.UID("uid-bad"), name="bad", namespace="ns")
    loop.kubelet.sync_pod(loop.test_kubelet.ctx, kubetypes.SYNC_POD_SYNC, new_pod("bad"), None, status)
    assert "uid-bad" not in loop.kubelet.waiting_pods


@failures
def test_pod_that_could_not_be_refused_is_not_started(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    class Handler:
        def admit(self, attributes: lifecycle.PodAdmitAttributes) -> lifecycle.PodAdmitResult:
            return lifecycle.PodAdmitResult(admit=False, reason="Refused", message="no")

    loop.kubelet.allocation_manager.add_pod_admit_handlers([Handler()])
    loop.test_kubelet.workers.unknown = {"uid-bad"}
    _fail_once(monkeypatch, loop.kubelet, "reject_pod", "uid-bad", err)
    loop.config(kubetypes.ADD, "bad")
    status = kubecontainer.PodStatus(id=types.UID("uid-bad"), name="bad", namespace="ns")
    ctx, pod = loop.test_kubelet.ctx, new_pod("bad")
    assert loop.kubelet.sync_pod(ctx, kubetypes.SYNC_POD_SYNC, pod, None, status) == SyncPodResult(is_terminal=True)
    assert loop.test_kubelet.runtime.started_pods == []


@pytest.mark.parametrize("err", FAILURES, ids=lambda err: type(err).__name__)
def test_pods_are_synced_though_a_sync_loop_handler_fails_for_one(loop: _Loop, err: Exception) -> None:
    class Handler:
        def should_sync(self, pod: v1.Pod) -> bool:
            if pod.metadata.name == "bad":
                raise err
            return pod.metadata.name == "z"

    loop.config(kubetypes.ADD, "bad", "due", "z")
    loop.test_kubelet.workers.updates.clear()
    loop.kubelet.pod_sync_loop_handlers = [Handler()]
    loop.kubelet.work_queue.enqueue(types.UID("uid-due"), 0)
    loop.tick(1)
    assert sorted(loop.test_kubelet.workers.update_types()) == [("SYNC", "due"), ("SYNC", "z")]


@failures
@pytest.mark.parametrize("kind", ["readiness", "startup"])
def test_probe_result_that_cannot_be_noted(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, kind: str, err: Exception
) -> None:
    loop.config(kubetypes.ADD, "p")
    _fail_once(monkeypatch, loop.kubelet.status_manager, f"set_container_{kind}", "uid-p", err)
    manager = getattr(loop.kubelet, f"{kind}_manager")
    manager.set(kubecontainer.ContainerID("test", "c"), results.SUCCESS, new_pod("p"))
    loop.iterate()


@failures
@pytest.mark.parametrize("method", ["push_pending_resize", "retry_pending_resizes"])
def test_the_last_source_is_noted_though_pending_resizes_cannot_be_retried(
    loop: _Loop, monkeypatch: pytest.MonkeyPatch, method: str, err: Exception
) -> None:
    monkeypatch.setattr(
        loop.kubelet.allocation_manager, "update_pod_from_allocation", lambda pod: AllocatedPod(pod, differs=True)
    )
    monkeypatch.setattr(loop.kubelet.allocation_manager, method, raising(err))
    ready: list[bool] = []
    sources = FakeSourcesReady()
    monkeypatch.setattr(sources, "add_source", lambda source: ready.append(True))
    monkeypatch.setattr(sources, "all_ready", lambda: bool(ready))
    loop.kubelet.sources_ready = sources
    loop.config(kubetypes.ADD, "p")
    assert loop.test_kubelet.volumes.changes == ["sources"]
    assert loop.kubelet.all_sources_seen.try_recv() == (None, False, True)


# ---- Housekeeping ----

_STEPS = [
    ("probe_manager", "cleanup_pods"),
    ("status_manager", "remove_orphaned_statuses"),
    ("allocation_manager", "remove_orphaned_pods"),
    ("userns_manager", "cleanup_orphaned_pod_userns_allocations"),
    ("mirror_pod_client", "delete_in_background"),
]


@failures
@pytest.mark.parametrize(("part", "method"), _STEPS, ids=lambda text: text)
def test_step_of_housekeeping_that_fails_does_not_hold_up_the_later_ones(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, part: str, method: str, err: Exception
) -> None:
    test_kubelet.kubelet.pod_manager.add_pod(new_pod("wanted"))
    monkeypatch.setattr(getattr(test_kubelet.kubelet, part), method, raising(err))
    test_kubelet.housekeep()
    assert test_kubelet.workers.update_types() == [("CREATE", "wanted")]


@failures
def test_housekeeping_goes_on_with_other_pods(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    for name in ("bad", "wanted"):
        test_kubelet.kubelet.pod_manager.add_pod(new_pod(name))
    test_kubelet.runtime.pod_list = [runtime_pod(new_pod("badorphan")), runtime_pod(new_pod("orphan"))]
    real = test_kubelet.workers.update_pod

    def update_pod(ctx: golang.Context, options: UpdatePodOptions) -> None:
        if "uid-bad" in str(options):
            raise err
        real(ctx, options)

    monkeypatch.setattr(test_kubelet.workers, "update_pod", update_pod)
    test_kubelet.housekeep()
    assert test_kubelet.workers.update_types() == [("CREATE", "wanted"), ("KILL", "uid-orphan")]


# ---- Threads other than the loop's ----


@failures
def test_mirrors_of_the_other_static_pods_are_made(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    made: list[str] = []

    def reconcile(ctx: golang.Context, static_pod: v1.Pod, mirror_pod: v1.Pod | None) -> None:
        if static_pod.metadata.name == "bad":
            raise err
        made.append(static_pod.metadata.name)

    kubelet = test_kubelet.kubelet
    for name in ("a", "bad", "z"):
        pod = new_pod(name)
        pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
        kubelet.pod_manager.add_pod(pod)
    monkeypatch.setattr(kubelet, "get_node", lambda ctx: v1.Node())
    monkeypatch.setattr(kubelet, "try_reconcile_mirror_pods", reconcile)
    kubelet.fast_static_pods_registration(test_kubelet.ctx)
    assert made == ["a", "z"]


@failures
def test_volumes_in_use_are_reported_after_a_report_that_failed(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    kubelet = test_kubelet.kubelet
    reports: golang.Channel[int] = golang.Channel(10)

    def report(ctx: golang.Context) -> None:
        reports.send(1)

    def fail(ctx: golang.Context) -> None:
        reports.send(0)
        raise err

    monkeypatch.setattr(kubelet, "sync_node_status", fail)
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    thread = golang.go(kubelet._report_volumes_in_use, ctx, name="node-status-volumes")
    kubelet.volumes_in_use_changed.send(None)
    assert reports.recv(30) == (0, True)
    monkeypatch.setattr(kubelet, "sync_node_status", report)
    kubelet.volumes_in_use_changed.send(None)
    assert reports.recv(30) == (1, True)
    cancel()
    thread.join(30)


@pytest.mark.parametrize("err", [*FAILURES, OSError("no such directory")], ids=lambda err: type(err).__name__)
def test_local_agents_are_served_once_that_can_be(
    test_kubelet: TestKubelet, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    served: golang.Channel[None] = golang.Channel(1)

    def serve(ctx: golang.Context, endpoint: str, providers: Any) -> None:
        served.send(None)
        ctx.done().recv()

    monkeypatch.setattr(podresources_server, "listen_and_serve_pod_resources", failing_once(serve, err))
    ctx, cancel = golang.with_cancel(test_kubelet.ctx)
    thread = golang.go(test_kubelet.kubelet.listen_and_serve_pod_resources, ctx, name="pod-resources")
    test_kubelet.clock.wait_for_waiters()
    test_kubelet.clock.step(POD_RESOURCES_RETRY_PERIOD)
    assert served.recv(30)[1]
    cancel()
    thread.join(30)
