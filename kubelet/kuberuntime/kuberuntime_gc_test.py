"""Test garbage collection in the runtime.

Go: pkg/kubelet/kuberuntime/kuberuntime_gc_test.go
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet.cri import errors as crierror
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import testing
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.component_base.tracing import testing as tracingtesting

_CTX = golang.background()
_READY = runtimeapi.SANDBOX_READY
_NOTREADY = runtimeapi.SANDBOX_NOTREADY
_EXITED = runtimeapi.CONTAINER_EXITED
_RUNNING = runtimeapi.CONTAINER_RUNNING
_HOUR = 3600.0
_POLICY = kubecontainer.GCPolicy(min_age=_HOUR, max_per_pod_container=2, max_containers=6)


@pytest.fixture
def fake(tmp_path: Path) -> testing.TestRuntime:
    fake = testing.create_test_runtime_manager(str(tmp_path), testingclock.FakeClock())
    fake.os.stat_fn = os.stat
    return fake


@dataclass
class _Sandbox:
    pod: str
    attempt: int = 0
    state: Any = _NOTREADY
    terminating: bool = False
    # `created` is in nanoseconds since 1970; None stands for the attempt number.
    created: int | None = None


@dataclass
class _Container:
    pod: str
    name: str = "bar"
    attempt: int = 0
    # `created` is in seconds since 1970; a negative value counts back from now.
    created: float = 0
    state: Any = _EXITED
    sandbox_attempt: int = 0


def _ids(sandboxes: list[_Sandbox]) -> list[str]:
    return [f"{s.pod}_{s.attempt}" for s in sandboxes]


def _set_sandboxes(fake: testing.TestRuntime, sandboxes: list[_Sandbox]) -> None:
    fake.runtime.set_fake_sandboxes(
        runtimeapi.PodSandboxStatus(
            id=f"{s.pod}_{s.attempt}",
            state=s.state,
            created_at=s.attempt if s.created is None else s.created,
            metadata=runtimeapi.PodSandboxMetadata(name=s.pod, uid=s.pod, attempt=s.attempt),
        )
        for s in sandboxes
    )
    fake.pod_state.removed = {s.pod for s in sandboxes if s.pod == "deleted"}
    fake.pod_state.terminated = {s.pod for s in sandboxes if s.terminating}


def _container_id(c: _Container) -> str:
    return f"{c.pod}_{c.name}_{c.attempt}"


def _set_containers(fake: testing.TestRuntime, containers: list[_Container]) -> None:
    now = fake.clock.now().timestamp()
    fake.runtime.set_fake_containers(
        critesting.FakeContainer(
            runtimeapi.ContainerStatus(
                id=_container_id(c),
                state=c.state,
                created_at=int((now + c.created if c.created < 0 else c.created) * 1e9),
                metadata=runtimeapi.ContainerMetadata(name=c.name, attempt=c.attempt),
                labels={"io.kubernetes.pod.uid": c.pod},
            ),
            f"{c.pod}_{c.sandbox_attempt}",
        )
        for c in containers
    )


@dataclass
class _SandboxCase:
    sandboxes: list[_Sandbox]
    remain: list[int]
    containers: list[_Container] = field(default_factory=list)
    evict_non_deleted: bool = False


_SANDBOX_CASES = {
    "not ready, of a deleted pod": _SandboxCase([_Sandbox("deleted")], []),
    "ready, of a deleted pod": _SandboxCase([_Sandbox("deleted", state=_READY)], [0]),
    "of existing pods": _SandboxCase([_Sandbox("foo1", state=_READY), _Sandbox("foo2")], [0, 1]),
    "older one of an existing pod": _SandboxCase([_Sandbox("foo1", 1), _Sandbox("foo1", 0)], [0]),
    "older one from before the clock was set back": _SandboxCase(
        [_Sandbox("foo1", 1), _Sandbox("foo1", 0, created=10**9)], [0]
    ),
    "older one with containers": _SandboxCase([_Sandbox("foo1", 1), _Sandbox("foo1", 0)], [0, 1], [_Container("foo1")]),
    "terminated pods when told so": _SandboxCase(
        [_Sandbox("foo1", state=_READY, terminating=True), _Sandbox("foo2", terminating=True)],
        [0],
        evict_non_deleted=True,
    ),
    "terminated pods when not told so": _SandboxCase([_Sandbox("foo2", terminating=True)], [0]),
    "with containers": _SandboxCase([_Sandbox("deleted")], [0], [_Container("deleted")]),
    "several": _SandboxCase(
        [
            _Sandbox("foo1", 1, _READY),
            _Sandbox("foo1", 0),
            _Sandbox("foo2", 1),
            _Sandbox("foo2", 0),
            _Sandbox("deleted"),
        ],
        [0, 2],
        [_Container("foo2", sandbox_attempt=1)],
    ),
}


@pytest.mark.parametrize("case", _SANDBOX_CASES.values(), ids=_SANDBOX_CASES.keys())
def test_sandbox_gc(fake: testing.TestRuntime, case: _SandboxCase) -> None:
    _set_sandboxes(fake, case.sandboxes)
    _set_containers(fake, case.containers)
    no_limits = kubecontainer.GCPolicy(min_age=_HOUR * 10**6, max_per_pod_container=-1, max_containers=-1)
    fake.manager.garbage_collect(_CTX, no_limits, True, case.evict_non_deleted)
    assert list(fake.runtime.sandboxes) == _ids([case.sandboxes[i] for i in case.remain])


@dataclass
class _ContainerCase:
    containers: list[_Container]
    remain: list[int]
    policy: kubecontainer.GCPolicy = _POLICY
    evict_non_deleted: bool = False
    all_sources_ready: bool = True


def _runs(pod: str, count: int, name: str = "bar", began: float = 0) -> list[_Container]:
    """Return the runs of a container, newest first."""
    return [_Container(pod, name, attempt, created=began + attempt) for attempt in reversed(range(count))]


_CONTAINER_CASES = {
    "limit of 0 removes all": _ContainerCase(_runs("foo", 1), [], kubecontainer.GCPolicy(60, 1, 0)),
    "total limit without limit per container": _ContainerCase(
        _runs("foo", 5), [0, 1, 2, 3], kubecontainer.GCPolicy(60, -1, 4)
    ),
    "no limits": _ContainerCase(_runs("foo", 3), [0, 1, 2], kubecontainer.GCPolicy(60, -1, -1)),
    "too young": _ContainerCase([_Container("foo", attempt=a, created=-60) for a in (2, 1, 0)], [0, 1, 2]),
    "old enough": _ContainerCase([_Container("foo", attempt=a, created=-4000 + a) for a in (2, 1, 0)], [0, 1]),
    "limit per container": _ContainerCase(_runs("foo", 3), [0, 1]),
    "limit per container, after the clock was set back": _ContainerCase(
        [_Container("foo", attempt=3, created=5), _Container("foo", attempt=2, created=4), *_runs("foo", 2, began=9)],
        [0, 1],
    ),
    "running ones stay": _ContainerCase(
        [*_runs("foo", 3)[:2], _Container("foo", attempt=0, state=_RUNNING)], [0, 1, 2]
    ),
    "limits not exceeded": _ContainerCase(_runs("foo", 2), [0, 1]),
    "limit per container, over several": _ContainerCase(
        [*_runs("foo", 3), *_runs("foo1", 3), *_runs("foo2", 2)], [0, 1, 3, 4, 6, 7]
    ),
    "total limit, one each": _ContainerCase([c for i in range(5) for c in _runs(f"foo{i}", 2)], [0, 2, 4, 6, 8]),
    "total limit, then the oldest": _ContainerCase(
        [
            *_runs("foo", 3)[:2],
            *_runs("foo1", 3)[:2],
            *_runs("foo2", 2)[:1],
            *_runs("foo3", 1),
            *_runs("foo4", 2)[:1],
            *_runs("foo5", 1),
            *_runs("foo6", 3)[:1],
            *_runs("foo7", 2)[:1],
        ],
        [0, 2, 4, 6, 8, 9],
    ),
    "terminated pods when told so": _ContainerCase(
        [
            *_runs("foo", 2),
            *_runs("foo1", 2),
            _Container("running"),
            _Container("foo3", state=_RUNNING),
        ],
        [4, 5],
        evict_non_deleted=True,
    ),
    "deleted pods, but for the young": _ContainerCase(
        [*_runs("foo", 2), _Container("deleted", attempt=2, created=-60), *_runs("deleted", 2)], [0, 1, 2]
    ),
    "deleted pods before all sources are ready": _ContainerCase(
        _runs("deleted", 1), [0], evict_non_deleted=True, all_sources_ready=False
    ),
}


@pytest.mark.parametrize("case", _CONTAINER_CASES.values(), ids=_CONTAINER_CASES.keys())
def test_container_gc(fake: testing.TestRuntime, case: _ContainerCase) -> None:
    _set_containers(fake, case.containers)
    fake.pod_state.removed = {"deleted"}
    fake.pod_state.terminated = {c.pod for c in case.containers if c.pod != "running"}
    fake.manager.garbage_collect(_CTX, case.policy, case.all_sources_ready, case.evict_non_deleted)
    assert list(fake.runtime.containers) == [_container_id(case.containers[i]) for i in case.remain]


@pytest.mark.parametrize(("max_per_pod_container", "kept"), [(1, False), (2, True)], ids=["as by default", "one more"])
def test_container_that_is_about_to_start_counts_as_dead(
    fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch, max_per_pod_container: int, kept: bool
) -> None:
    """The last exited run survives a collection during a restart only if the limit is 2, as in Go."""
    pod = v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID("foo"), name="foo", namespace="ns"),
        spec=v1.PodSpec(containers=[v1.Container(name="bar", image="busybox")], restart_policy="Always"),
    )
    assert _sync(fake, pod).error() is None
    (ended,) = fake.runtime.containers
    fake.runtime.exit_container(ended, 1)
    start = fake.manager.runtime_service.start_container

    def collect_then_start(ctx: golang.Context, container_id: str) -> None:
        fake.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(0, max_per_pod_container, -1), True, False)
        start(ctx, container_id)

    monkeypatch.setattr(fake.manager.runtime_service, "start_container", collect_then_start)
    assert _sync(fake, pod).error() is None
    assert (ended in fake.runtime.containers) is kept
    states = [container.status.state for container in fake.runtime.containers.values()]
    assert states == ([_EXITED, _RUNNING] if kept else [_RUNNING])


def _sync(fake: testing.TestRuntime, pod: v1.Pod) -> kubecontainer.PodSyncResult:
    try:
        status = fake.manager.get_pod_status(_CTX, fake.manager.get_pod(_CTX, pod.metadata.uid))
    except kubecontainer.ErrPodNotFound:
        status = kubecontainer.PodStatus(id=pod.metadata.uid, name="foo", namespace="ns")
    return fake.manager.sync_pod(_CTX, pod, status, [], fake.back_off(), False)


def test_collections_are_traced(tmp_path: Path) -> None:
    tracer_provider = tracingtesting.FakeTracerProvider()
    fake = testing.create_test_runtime_manager(str(tmp_path), testingclock.FakeClock(), tracer_provider=tracer_provider)
    fake.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(0, 0, 0), True, False)
    assert tracer_provider.started == ["Containers/GarbageCollect"]


def test_unknown_container_is_stopped_before_it_is_removed(fake: testing.TestRuntime) -> None:
    _set_containers(fake, [_Container("foo", state=runtimeapi.CONTAINER_UNKNOWN)])
    fake.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(0, 0, 0), True, False)
    calls = fake.runtime.called()
    assert fake.runtime.containers == {}
    assert calls.index("StopContainer") < calls.index("RemoveContainer")


def test_unknown_container_that_cannot_be_stopped_stays(fake: testing.TestRuntime) -> None:
    _set_containers(fake, [_Container("foo", state=runtimeapi.CONTAINER_UNKNOWN)])
    fake.runtime.inject_error("StopContainer", crierror.RemoteError(grpc.StatusCode.UNKNOWN, "stuck"))
    fake.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(0, 0, 0), True, False)
    assert len(fake.runtime.containers) == 1


def test_one_failing_step_does_not_keep_the_others_from_freeing(fake: testing.TestRuntime) -> None:
    _set_sandboxes(fake, [_Sandbox("deleted")])
    fake.runtime.inject_error("ListContainers", crierror.RemoteError(grpc.StatusCode.UNKNOWN, "down"))
    with pytest.raises(ExceptionGroup) as caught:
        fake.manager.garbage_collect(_CTX, _POLICY, True, False)
    assert [str(err) for err in caught.value.exceptions] == ["rpc error: code = Unknown desc = down"]
    assert fake.runtime.sandboxes == {}


@pytest.mark.parametrize(("ready", "expected"), [(True, ["new_foo_123", "123"]), (False, [])])
def test_pod_log_directory_gc(fake: testing.TestRuntime, tmp_path: Path, ready: bool, expected: list[str]) -> None:
    directory = tmp_path / "pods"
    for name in ("new_foo_123", "new_bar_456", "123", "456"):
        (directory / name).mkdir(parents=True)
    fake.os.read_dir_fn = lambda path: sorted(os.scandir(directory), key=lambda e: e.name, reverse=True)
    fake.pod_state.removed = {"123"}
    fake.manager.garbage_collect(_CTX, _POLICY, ready, False)
    assert fake.os.removes == [f"/var/log/pods/{name}" for name in expected]


@pytest.mark.parametrize(
    ("state", "known", "removed"),
    [(_EXITED, True, True), (_RUNNING, True, False), (_EXITED, False, True)],
    ids=["dead", "rotating", "unknown to the runtime"],
)
def test_dangling_log_links_of_dead_containers_go(
    fake: testing.TestRuntime, state: Any, known: bool, removed: bool
) -> None:
    link = "/var/log/containers/foo_ns_bar-" + "a" * 64 + ".log"
    if known:
        _set_containers(fake, [_Container("foo", state=state)])
        (container,) = fake.runtime.containers.values()
        container.status.id = "a" * 64
        fake.runtime.set_fake_containers([container])
    fake.os.files[link] = []
    fake.os.glob_fn = lambda pattern, path: True
    young = kubecontainer.GCPolicy(_HOUR * 10**6, -1, -1)
    fake.manager.garbage_collect(_CTX, young, True, False)
    assert (link in fake.os.removes) is removed


@pytest.mark.parametrize(
    "err",
    [
        crierror.RemoteError(grpc.StatusCode.UNAVAILABLE, "is away"),
        crierror.RemoteError(grpc.StatusCode.DEADLINE_EXCEEDED, "hangs"),
        # If the file system cut the name of a link, the ID in it is only the beginning of the container's ID.
        crierror.InvalidResponseError("status.Id is 'aaaa', but the request was for 'aaa'"),
    ],
    ids=str,
)
def test_dangling_log_link_stays_when_the_runtime_does_not_answer(
    fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch, err: crierror.RemoteError
) -> None:
    link = "/var/log/containers/foo_ns_bar-" + "a" * 64 + ".log"
    fake.os.files[link] = []
    fake.os.glob_fn = lambda pattern, path: True
    monkeypatch.setattr(fake.manager.runtime_service, "container_status", raising(err))
    fake.manager.garbage_collect(_CTX, kubecontainer.GCPolicy(_HOUR * 10**6, -1, -1), True, False)
    assert link not in fake.os.removes


def test_min_age_counts_from_now(fake: testing.TestRuntime) -> None:
    assert isinstance(fake.clock, testingclock.FakeClock)
    _set_containers(fake, [_Container("foo", created=-3590)])
    policy = kubecontainer.GCPolicy(_HOUR, 0, 0)
    fake.manager.garbage_collect(_CTX, policy, True, False)
    assert len(fake.runtime.containers) == 1
    fake.clock.step(timedelta(seconds=11).total_seconds())
    fake.manager.garbage_collect(_CTX, policy, True, False)
    assert fake.runtime.containers == {}


@failures
@pytest.mark.parametrize("method", ["stop_pod_sandbox", "remove_pod_sandbox"])
def test_sandbox_that_cannot_be_removed_leaves_the_others(
    fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch, method: str, err: Exception
) -> None:
    gc = fake.manager.container_gc
    removed: list[str] = []
    monkeypatch.setattr(fake.manager.runtime_service, "remove_pod_sandbox", lambda ctx, id: removed.append(id))
    monkeypatch.setattr(fake.manager.runtime_service, "stop_pod_sandbox", lambda ctx, id: None)
    call = getattr(fake.manager.runtime_service, method)
    monkeypatch.setattr(fake.manager.runtime_service, method, failing_once(call, err, "bad"))
    for sandbox in ("a", "bad", "z"):
        gc._remove_sandbox(golang.background(), sandbox)
    assert removed == ["a", "z"]
