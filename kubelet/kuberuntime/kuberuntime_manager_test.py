"""Test the sync of pods; compute_pod_actions_test.py tests the computation of actions.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager_test.go
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import events, images, lifecycle
from kubelet.cri import errors as crierror
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import ErrVersionNotSupported, testing
from kubelet.kuberuntime.kuberuntime_container import ErrCreateContainer, ErrCreateContainerConfig
from kubelet.lifecycle.handlers import HookError
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.client_go.util import flowcontrol
from pkg.golang.testing import frames_kept_after

_CTX = golang.background()
_UID = types.UID("12345678")
_SANDBOX = "foo_new_12345678_0"


def _down(message: str = "runtime is down") -> crierror.RemoteError:
    return crierror.RemoteError(grpc.StatusCode.UNKNOWN, message)


def _pod(*containers: v1.Container, init: list[v1.Container] | None = None) -> v1.Pod:
    default = (_container("foo1", "busybox"), _container("foo2", "alpine"))
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=_UID, name="foo", namespace="new"),
        spec=v1.PodSpec(containers=list(containers or default), init_containers=init or [], restart_policy="Always"),
    )


def _container(name: str, image: str, **fields: object) -> v1.Container:
    return v1.Container(name=name, image=image, image_pull_policy="IfNotPresent", **fields)  # type: ignore[arg-type]


def _status(fake: testing.TestRuntime) -> kubecontainer.PodStatus:
    try:
        return fake.manager.get_pod_status(_CTX, fake.manager.get_pod(_CTX, _UID))
    except kubecontainer.ErrPodNotFound:
        return kubecontainer.PodStatus(id=_UID, name="foo", namespace="new")


def _sync(
    fake: testing.TestRuntime, pod: v1.Pod, back_off: flowcontrol.Backoff | None = None
) -> kubecontainer.PodSyncResult:
    return fake.manager.sync_pod(_CTX, pod, _status(fake), [], back_off or fake.back_off(), False)


@pytest.fixture
def clock() -> testingclock.FakeClock:
    return testingclock.FakeClock()


@pytest.fixture
def fake(tmp_path: Path, clock: testingclock.FakeClock) -> testing.TestRuntime:
    return testing.create_test_runtime_manager(str(tmp_path), clock)


def test_version_and_type(fake: testing.TestRuntime) -> None:
    assert fake.manager.type() == critesting.FAKE_RUNTIME_NAME
    assert str(fake.manager.version(_CTX)) == "0.1.0"
    assert fake.manager.api_version().compare("0.1.0") == 0


def test_other_api_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(critesting, "FAKE_VERSION", "0.2.0")
    with pytest.raises(ErrVersionNotSupported):
        testing.create_test_runtime_manager(str(tmp_path))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("v1.7.24", "1.7.24"),
        ("2.1.9+unknown", "2.1.9+unknown"),
        ("2.2.0-rc.1", "2.2.0-rc.1"),
        # Debian's version is not a semantic version.
        ("1.6.20~ds1", "1.6.20"),
    ],
)
def test_version_is_semantic_if_it_can_be(
    fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch, told: str, shown: str
) -> None:
    monkeypatch.setattr(critesting, "FAKE_VERSION", told)
    assert str(fake.manager.version(_CTX)) == shown


def test_status(fake: testing.TestRuntime) -> None:
    with pytest.raises(ValueError, match="runtime status is nil"):
        fake.manager.status(_CTX)
    fake.runtime.runtime_status = runtimeapi.StatusResponse(
        status=runtimeapi.RuntimeStatus(conditions=[runtimeapi.RuntimeCondition(type="RuntimeReady", status=True)]),
        runtime_handlers=[
            runtimeapi.RuntimeHandler(name="runc", features=runtimeapi.RuntimeHandlerFeatures(user_namespaces=True))
        ],
        features=runtimeapi.RuntimeFeatures(supplemental_groups_policy=True),
    )
    status = fake.manager.status(_CTX)
    condition = status.get_runtime_condition("RuntimeReady")
    assert condition is not None and condition.status
    assert status.handlers[0].supports_user_namespaces
    assert not status.handlers[0].supports_recursive_read_only_mounts
    assert status.features is not None and status.features.supplemental_groups_policy


def test_sync_pod_starts_sandbox_and_containers(fake: testing.TestRuntime) -> None:
    result = _sync(fake, _pod())
    assert result.error() is None
    assert [str(r.action) for r in result.sync_results] == [
        "KillPodSandbox",
        "CreatePodSandbox",
        "StartContainer",
        "StartContainer",
    ]
    statuses = fake.runtime.containers.values()
    assert [c.status.state for c in statuses] == [runtimeapi.CONTAINER_RUNNING] * 2
    assert {c.sandbox_id for c in statuses} == {_SANDBOX}
    took = re.compile(r"in [\d.]+m?s \([\d.]+m?s including waiting\)")
    assert [took.sub("in 0s (0s including waiting)", event) for event in fake.recorder.drain()] == [
        'Normal Pulling Pulling image "busybox"',
        'Normal Pulled Successfully pulled image "busybox" in 0s (0s including waiting). Image size: 1 bytes.',
        "Normal Created Container created",
        "Normal Started Container started",
        'Normal Pulling Pulling image "alpine"',
        'Normal Pulled Successfully pulled image "alpine" in 0s (0s including waiting). Image size: 1 bytes.',
        "Normal Created Container created",
        "Normal Started Container started",
    ]
    fake.runtime.reset_calls()
    assert _sync(fake, _pod()).error() is None
    assert not {"RunPodSandbox", "CreateContainer", "StopContainer"} & set(fake.runtime.called())


def test_sync_pod_links_the_log(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod(_container("foo1", "busybox")))
    assert fake.os.symlinks == [
        (
            "/var/log/pods/new_foo_12345678/foo1/0.log",
            "/var/log/containers/foo_new_foo1-foo_new_12345678_0_foo1_0.log",
        )
    ]


def test_sync_pod_rewrites_sysctls_for_the_sandbox_alone(fake: testing.TestRuntime) -> None:
    pod = _pod()
    pod.spec.security_context = v1.PodSecurityContext(
        sysctls=[
            v1.Sysctl(name="kernel/shm_rmid_forced", value="1"),
            v1.Sysctl(name="net/ipv4/ip_local_port_range", value="1024 65535"),
        ]
    )
    _sync(fake, pod)
    config = fake.runtime.requests("RunPodSandbox")[0][0]
    assert dict(config.linux.sysctls) == {
        "kernel.shm_rmid_forced": "1",
        "net.ipv4.ip_local_port_range": "1024 65535",
    }
    assert pod.spec.security_context.sysctls[0].name == "kernel/shm_rmid_forced"


def test_sync_pod_runs_init_containers_one_by_one(fake: testing.TestRuntime) -> None:
    pod = _pod(init=[_container("init1", "busybox"), _container("init2", "busybox")])

    def names() -> list[str]:
        return [args[1].metadata.name for args in fake.runtime.requests("CreateContainer")]

    _sync(fake, pod)
    assert names() == ["init1"]
    _sync(fake, pod)
    assert names() == ["init1"]
    fake.runtime.exit_container(f"{_SANDBOX}_init1_0", 0)
    _sync(fake, pod)
    assert names() == ["init1", "init2"]
    fake.runtime.exit_container(f"{_SANDBOX}_init2_0", 0)
    _sync(fake, pod)
    assert names() == ["init1", "init2", "foo1", "foo2"]


def test_new_sandbox_purges_init_containers(fake: testing.TestRuntime) -> None:
    pod = _pod(init=[_container("init1", "busybox")])
    _sync(fake, pod)
    fake.runtime.exit_container(f"{_SANDBOX}_init1_0", 0)
    fake.runtime.stop_pod_sandbox(_CTX, _SANDBOX)
    fake.recorder.drain()
    assert _sync(fake, pod).error() is None
    # The restart count continues from the removed container.
    assert list(fake.runtime.containers) == ["foo_new_12345678_1_init1_1"]
    assert fake.recorder.drain()[0] == ("Normal SandboxChanged Pod sandbox changed, it will be killed and re-created.")


@pytest.mark.parametrize("policy", ["Always", "OnFailure", "Never"])
def test_sandbox_that_is_lost_before_a_container_starts_is_made_anew(fake: testing.TestRuntime, policy: str) -> None:
    """After such a loss, as in a reboot, the remains of the container do not prove that the pod is initialized."""
    pod = _pod(_container("foo1", "busybox"), init=[_container("init1", "busybox")])
    pod.spec.restart_policy = policy
    _sync(fake, pod)
    fake.runtime.exit_container(f"{_SANDBOX}_init1_0", 0)
    fake.runtime.inject_error("StartContainer", _down())
    _sync(fake, pod)
    fake.runtime.sandboxes[_SANDBOX].state = runtimeapi.SANDBOX_NOTREADY
    for _ in range(2):
        _sync(fake, pod)
        assert list(fake.runtime.containers) == ["foo_new_12345678_1_init1_1"]
    fake.runtime.exit_container("foo_new_12345678_1_init1_1", 0)
    _sync(fake, pod)
    started = [container_id for (container_id,) in fake.runtime.requests("StartContainer")]
    assert started[-2:] == ["foo_new_12345678_1_init1_1", "foo_new_12345678_1_foo1_0"]


def test_prune_init_containers_keeps_the_last_run(fake: testing.TestRuntime) -> None:
    pod = _pod(init=[_container("init1", "busybox")])
    back_off = fake.back_off()
    clock = fake.clock
    assert isinstance(clock, testingclock.FakeClock)
    _sync(fake, pod, back_off)
    for attempt in range(2):
        fake.runtime.exit_container(f"{_SANDBOX}_init1_{attempt}", 1)
        clock.step(600)
        _sync(fake, pod, back_off)
    fake.runtime.exit_container(f"{_SANDBOX}_init1_2", 1)
    fake.manager.prune_init_containers_before_start(_CTX, pod, _status(fake))
    assert list(fake.runtime.containers) == [f"{_SANDBOX}_init1_2"]


def test_failing_init_container_stops_the_sync(fake: testing.TestRuntime) -> None:
    pod = _pod(init=[_container("init1", "busybox")])
    fake.runtime.inject_error("CreateContainer", _down("no room"))
    result = _sync(fake, pod)
    assert [r.target for r in result.sync_results if r.error is not None] == ["init1"]
    assert str(result.error()) == 'failed to "StartContainer" for "init1" with CreateContainerError: "no room"'


def test_failing_container_does_not_keep_others_from_starting(fake: testing.TestRuntime) -> None:
    fake.runtime.inject_error("CreateContainer", _down("no room"))
    result = _sync(fake, _pod())
    failed = [r for r in result.sync_results if r.error is not None]
    assert [(r.target, type(r.error), r.message) for r in failed] == [("foo1", ErrCreateContainer, "no room")]
    assert list(fake.runtime.containers) == [f"{_SANDBOX}_foo2_0"]
    assert "Warning Failed Error: no room" in fake.recorder.drain()


@pytest.mark.parametrize(
    ("method", "reason", "text"),
    [("StartContainer", "RunContainerError", "Error: bad command"), ("ImageStatus", "", "")],
)
def test_start_failures(fake: testing.TestRuntime, method: str, reason: str, text: str) -> None:
    pod = _pod(_container("foo1", "busybox"))
    if method == "ImageStatus":
        fake.images.inject_error(method, _down())
        result = _sync(fake, pod)
        assert isinstance(result.sync_results[-1].error, images.ErrImageInspect)
        return
    fake.runtime.inject_error(method, _down("bad command"))
    result = _sync(fake, pod)
    assert str(result.sync_results[-1].error) == reason
    assert f"Warning Failed {text}" in fake.recorder.drain()


def test_missing_configuration_names_the_cause(fake: testing.TestRuntime) -> None:
    def fail(*args: object) -> None:
        raise LookupError('configmap "conf" not found')

    fake.helper.generate_run_container_options = fail  # type: ignore[method-assign, assignment]
    result = _sync(fake, _pod(_container("foo1", "busybox")))
    error = result.sync_results[-1].error
    assert isinstance(error, ErrCreateContainerConfig) and isinstance(error.__cause__, LookupError)
    assert result.sync_results[-1].message == 'configmap "conf" not found'
    assert 'Warning Failed Error: configmap "conf" not found' in fake.recorder.drain()


def test_failed_sandbox_is_told(fake: testing.TestRuntime) -> None:
    fake.runtime.inject_error("RunPodSandbox", _down("no network"))
    result = _sync(fake, _pod())
    error = result.sync_results[-1].error
    assert isinstance(error, kubecontainer.ErrCreatePodSandbox)
    assert fake.recorder.drain() == [
        "Warning FailedCreatePodSandBox Failed to create pod sandbox: rpc error: code = Unknown desc = no network"
    ]


def test_sandbox_that_is_there_and_cannot_be_configured_is_told(fake: testing.TestRuntime) -> None:
    """The pod gets an event and a failed sync, because no container starts in its sandbox."""
    pod = _pod(_container("foo1", "busybox"))
    _sync(fake, pod)
    fake.recorder.drain()
    fake.helper.err = ValueError("bad record")
    changed = _pod(_container("foo1", "other"))
    result = _sync(fake, changed)
    text = 'GeneratePodSandboxConfig for pod "foo_new(12345678)" failed: bad record'
    assert str(result.error()) == f"failed to SyncPod: {text}"
    assert fake.recorder.drain()[-1] == f"Warning FailedSync {text}"


def test_claims_that_cannot_be_prepared_are_told(fake: testing.TestRuntime) -> None:
    """Nothing is created for the pod, and the failed sync makes the next one come soon."""

    def refuse(ctx: golang.Context, pod: v1.Pod) -> None:
        raise ValueError("no such driver")

    fake.helper.prepare_dynamic_resources = refuse  # type: ignore[method-assign]
    result = _sync(fake, _pod())
    assert str(result.error()) == "failed to SyncPod: no such driver"
    assert "RunPodSandbox" not in fake.runtime.called()
    text = "Failed to prepare dynamic resources: no such driver"
    assert fake.recorder.drain() == [f"Warning FailedPrepareDynamicResources {text}"]


def test_failed_sandbox_of_a_deleted_pod_is_no_error(fake: testing.TestRuntime) -> None:
    fake.runtime.inject_error("RunPodSandbox", _down("no network"))
    fake.pod_state.removed.add(_UID)
    assert _sync(fake, _pod()).error() is None
    assert fake.recorder.drain() == []


def test_failed_kill_ends_the_sync(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    changed = _pod(_container("foo1", "other"), _container("foo2", "other"))
    fake.runtime.inject_error("StopContainer", _down())
    fake.runtime.reset_calls()
    result = _sync(fake, changed)
    assert isinstance(result.sync_results[-1].error, kubecontainer.ErrKillContainer)
    assert "CreateContainer" not in fake.runtime.called()


def test_changed_container_is_replaced(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    fake.recorder.drain()
    assert _sync(fake, _pod(_container("foo1", "other"), _container("foo2", "alpine"))).error() is None
    assert "Normal Killing Container foo1 definition changed, will be restarted" in fake.recorder.drain()
    assert f"{_SANDBOX}_foo1_1" in fake.runtime.containers


def test_crashes_back_off(fake: testing.TestRuntime, clock: testingclock.FakeClock) -> None:
    pod = _pod(_container("foo1", "busybox"))
    back_off = fake.back_off()
    _sync(fake, pod, back_off)
    fake.runtime.exit_container(f"{_SANDBOX}_foo1_0", 1)
    clock.step(1)
    assert _sync(fake, pod, back_off).error() is None, "the first restart has no backoff"
    clock.step(1)
    fake.runtime.exit_container(f"{_SANDBOX}_foo1_1", 1)
    fake.recorder.drain()
    result = _sync(fake, pod, back_off).sync_results[-1]
    assert result.message == "back-off 10s restarting failed container=foo1 pod=foo_new(12345678)"
    assert isinstance(result.error, kubecontainer.BackoffError)
    assert str(result.error) == "CrashLoopBackOff"
    assert result.error.backoff_time == clock.now() + timedelta(seconds=10)
    assert fake.recorder.drain() == [
        "Warning BackOff Back-off restarting failed container foo1 in pod foo_new(12345678)"
    ]
    clock.step(10.5)
    assert _sync(fake, pod, back_off).error() is None
    assert fake.runtime.requests("CreateContainer")[-1][1].metadata.attempt == 2
    fake.runtime.exit_container(f"{_SANDBOX}_foo1_2", 1)
    result = _sync(fake, pod, back_off).sync_results[-1]
    assert result.message.startswith("back-off 20s restarting failed")


def test_restart_of_all_containers_keeps_logs_and_starts_anew(fake: testing.TestRuntime) -> None:
    pod = _pod()
    _sync(fake, pod)
    fake.runtime.reset_calls()
    result = fake.manager.sync_pod(_CTX, pod, _status(fake), [], fake.back_off(), True)
    assert result.error() is None
    assert fake.runtime.containers == {}
    assert [args[1] for args in fake.runtime.requests("StopContainer")] == [2, 2]
    assert _sync(fake, pod).error() is None
    assert len(fake.runtime.containers) == 2


def test_image_volume_is_mounted_by_its_image(fake: testing.TestRuntime) -> None:
    pod = _pod(_container("foo1", "busybox", volume_mounts=[v1.VolumeMount(name="vol", mount_path="/vol")]))
    pod.spec.volumes = [v1.Volume(name="vol", image=v1.ImageVolumeSource(reference="data:1", pull_policy="Always"))]
    seen: list[kubecontainer.ImageVolumes] = []
    original = fake.helper.generate_run_container_options

    def options(
        ctx: golang.Context,
        pod: v1.Pod,
        container: v1.Container,
        pod_ip: str,
        pod_ips: list[str],
        image_volumes: kubecontainer.ImageVolumes,
    ) -> tuple[kubecontainer.RunContainerOptions, Callable[[], None] | None]:
        seen.append(image_volumes)
        return original(ctx, pod, container, pod_ip, pod_ips, image_volumes)

    fake.helper.generate_run_container_options = options  # type: ignore[method-assign, assignment]
    assert _sync(fake, pod).error() is None
    assert [(v["vol"].image, v["vol"].user_specified_image) for v in seen] == [("data:1", "data:1")]


def test_image_volume_that_cannot_be_pulled_keeps_its_container_waiting(fake: testing.TestRuntime) -> None:
    mounts = [v1.VolumeMount(name="vol", mount_path="/vol")]
    pod = _pod(_container("foo1", "busybox", volume_mounts=mounts), _container("foo2", "busybox"))
    pod.spec.volumes = [v1.Volume(name="vol", image=v1.ImageVolumeSource(reference="data:1", pull_policy="Never"))]
    result = _sync(fake, pod)
    failed = [r for r in result.sync_results if r.error is not None]
    assert [(r.target, str(r.error)) for r in failed] == [("foo1", "ErrImageNeverPull")]
    assert list(fake.runtime.containers) == [f"{_SANDBOX}_foo2_0"]


def test_ephemeral_container_joins_its_target(fake: testing.TestRuntime) -> None:
    pod = _pod(_container("foo1", "busybox"))
    _sync(fake, pod)
    pod.spec.ephemeral_containers = [
        v1.EphemeralContainer(
            name="debug",
            image="busybox",
            image_pull_policy="IfNotPresent",
            target_container_name="foo1",
        )
    ]
    assert _sync(fake, pod).error() is None
    config = fake.runtime.requests("CreateContainer")[-1][1]
    options = config.linux.security_context.namespace_options
    assert config.metadata.name == "debug"
    assert options.pid == runtimeapi.TARGET
    assert options.target_id == f"{_SANDBOX}_foo1_0"


def test_post_start_hook_runs_though_the_start_cannot_be_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook must run in this sync, because the next sync finds the container running and runs no hook."""
    handler = v1.LifecycleHandler(exec=v1.ExecAction(command=["true"]))
    pod = _pod(_container("foo1", "busybox", lifecycle=v1.Lifecycle(post_start=handler)))
    runner = testing.FakeCommandRunner()
    fake = testing.create_test_runtime_manager(str(tmp_path), runner=runner)
    tell = fake.recorder.event

    def fail_to_tell(ref: object, event_type: str, reason: str, message: str) -> None:
        if reason == events.STARTED_CONTAINER:
            raise MemoryError
        tell(ref, event_type, reason, message)

    monkeypatch.setattr(fake.recorder, "event", fail_to_tell)
    assert _sync(fake, pod).error() is None
    assert runner.handlers == [handler]


def test_post_start_hook_failure_kills_the_container(tmp_path: Path) -> None:
    handler = v1.LifecycleHandler(exec=v1.ExecAction(command=["false"]))
    pod = _pod(_container("foo1", "busybox", lifecycle=v1.Lifecycle(post_start=handler)))
    runner = testing.FakeCommandRunner(HookError(RuntimeError("exit 1"), "hook said no"))
    fake = testing.create_test_runtime_manager(str(tmp_path), runner=runner)
    result = _sync(fake, pod).sync_results[-1]
    assert (str(result.error), result.message) == ("PostStartHookError", "hook said no")
    assert fake.runtime.containers[f"{_SANDBOX}_foo1_0"].status.state == runtimeapi.CONTAINER_EXITED
    recorded = fake.recorder.drain()
    assert recorded[-2:] == [
        "Warning FailedPostStartHook PostStartHook failed",
        "Normal Killing FailedPostStartHook",
    ]


@pytest.mark.parametrize("step", ["configuration", "hook", "image volume", "claims", "kill"])
def test_failed_sync_leaves_nothing_for_the_garbage_collector(tmp_path: Path, step: str) -> None:
    """A kept result and its errors hold no frames, because environments and commands may take megabytes."""
    handler = v1.LifecycleHandler(exec=v1.ExecAction(command=["false"]))
    pod = _pod(_container("foo1", "busybox", lifecycle=v1.Lifecycle(post_start=handler)))

    failing = testing.FakeCommandRunner(HookError(RuntimeError("exit 1"), "hook said no"))
    fake = testing.create_test_runtime_manager(str(tmp_path), runner=failing if step == "hook" else None)

    def fail(*args: object) -> None:
        raise LookupError("not found")

    match step:
        case "configuration":
            fake.helper.generate_run_container_options = fail  # type: ignore[method-assign, assignment]
        case "image volume":
            image = v1.ImageVolumeSource(reference="data:1", pull_policy="Never")
            pod.spec.volumes = [v1.Volume(name="model", image=image)]
            pod.spec.containers[0].volume_mounts = [v1.VolumeMount(name="model", mount_path="/m")]
        case "claims":
            fake.helper.prepare_dynamic_resources = fail  # type: ignore[method-assign, assignment]
        case "kill":
            _sync(fake, pod)
            pod.spec.containers[0].image = "other"
            fake.runtime.inject_error("StopContainer", _down())
    results: list[kubecontainer.PodSyncResult] = []
    assert frames_kept_after(lambda: results.append(_sync(fake, pod))) == []
    assert results[0].error() is not None


def test_image_that_cannot_be_pulled_leaves_nothing_for_the_garbage_collector(fake: testing.TestRuntime) -> None:
    fake.images.inject_error("PullImage", _down())
    pod = _pod(_container("foo1", "busybox"))
    back_off = fake.back_off()
    texts: list[str] = []

    def sync() -> None:
        texts.append(str(_sync(fake, pod, back_off).error()))

    # The test no longer keeps the result, because otherwise its errors would not be garbage.
    assert frames_kept_after(sync) == []
    assert frames_kept_after(sync) == []
    assert "ErrImagePull" in texts[0] and "ImagePullBackOff" in texts[1]


@pytest.mark.parametrize("pod_ends", [True, False], ids=["the pod ends", "the kubelet ends"])
def test_post_start_hook_is_cut_when_its_pod_is_to_end(tmp_path: Path, pod_ends: bool) -> None:
    handler = v1.LifecycleHandler(sleep=v1.SleepAction(seconds=3600))
    pod = _pod(_container("foo1", "busybox", lifecycle=v1.Lifecycle(post_start=handler)))
    ctx, cancel = golang.with_cancel(_CTX)
    pod_state = testing.FakePodStateProvider()

    class Runner(testing.FakeCommandRunner):
        def run(self, ctx: golang.Context, *args: Any) -> str:
            if pod_ends:
                pod_state.removed.add(_UID)
            cancel()
            assert ctx.wait(30)
            raise HookError(RuntimeError("cancelled"), "cut")

    fake = testing.create_test_runtime_manager(str(tmp_path), runner=Runner(), pod_state_provider=pod_state)
    sync_ctx = lifecycle.without_cancel_but_for_hooks(ctx)
    results = fake.manager.sync_pod(sync_ctx, pod, _status(fake), [], fake.back_off(), False).sync_results
    result = results[-1]

    assert (str(result.error), result.message) == ("PostStartHookError", "cut")
    running = fake.runtime.containers[f"{_SANDBOX}_foo1_0"].status.state == runtimeapi.CONTAINER_RUNNING
    assert running, "the termination of the pod stops its containers"
    told = "Warning FailedPostStartHook PostStartHook failed: not completed before the termination of the pod"
    assert (told in fake.recorder.drain()) is pod_ends


def test_kill_pod_stops_containers_and_every_sandbox(fake: testing.TestRuntime) -> None:
    pod = _pod()
    pod.spec.termination_grace_period_seconds = 30
    _sync(fake, pod)
    running = fake.manager.get_pod(_CTX, _UID)
    fake.runtime.reset_calls()
    fake.manager.kill_pod(_CTX, pod, running, None)
    assert sorted(fake.runtime.requests("StopContainer")) == [
        (f"{_SANDBOX}_foo1_0", 30),
        (f"{_SANDBOX}_foo2_0", 30),
    ]
    assert fake.runtime.called()[-1] == "StopPodSandbox"
    assert {c.status.state for c in fake.runtime.containers.values()} == {runtimeapi.CONTAINER_EXITED}


@pytest.mark.parametrize("known", [False, True], ids=["gone", "cannot be read in full"])
def test_kill_pod_without_spec_restores_it_from_labels(fake: testing.TestRuntime, known: bool) -> None:
    pod = _pod(_container("foo1", "busybox"))
    pod.spec.termination_grace_period_seconds = 7
    _sync(fake, pod)
    partial = v1.PartialPod(metadata=pod.metadata) if known else None
    fake.manager.kill_pod(_CTX, partial, fake.manager.get_pod(_CTX, _UID), None)
    assert fake.runtime.requests("StopContainer") == [(f"{_SANDBOX}_foo1_0", 7)]


@pytest.mark.parametrize(("override", "expected"), [(0, 2), (1, 2), (5, 5)])
def test_kill_pod_with_override(fake: testing.TestRuntime, override: int, expected: int) -> None:
    pod = _pod(_container("foo1", "busybox"))
    pod.spec.termination_grace_period_seconds = 30
    _sync(fake, pod)
    fake.manager.kill_pod(_CTX, pod, fake.manager.get_pod(_CTX, _UID), override)
    assert fake.runtime.requests("StopContainer")[0][1] == expected


def test_kill_pod_reports_all_failures(fake: testing.TestRuntime) -> None:
    pod = _pod()
    _sync(fake, pod)
    for method in ("StopContainer", "StopContainer", "StopPodSandbox"):
        fake.runtime.inject_error(method, _down())
    with pytest.raises(kubecontainer.SyncErrors) as caught:
        fake.manager.kill_pod(_CTX, pod, fake.manager.get_pod(_CTX, _UID), None)
    assert len(caught.value.exceptions) == 3


def test_kill_pod_takes_what_is_gone_for_killed(fake: testing.TestRuntime) -> None:
    pod = _pod(_container("foo1", "busybox"))
    _sync(fake, pod)
    running = fake.manager.get_pod(_CTX, _UID)
    fake.runtime.inject_error("StopContainer", critesting.not_found("container", "x"))
    fake.runtime.inject_error("StopPodSandbox", critesting.not_found("sandbox", "x"))
    fake.manager.kill_pod(_CTX, pod, running, None)


def test_kills_sidecars_after_what_they_serve(fake: testing.TestRuntime) -> None:
    pod = _pod(
        _container("main", "busybox"),
        init=[_container(name, "busybox", restart_policy="Always") for name in ("first", "second")],
    )
    pod.spec.termination_grace_period_seconds = 60
    for _ in range(3):
        _sync(fake, pod)
    fake.runtime.reset_calls()
    fake.manager.kill_pod(_CTX, pod, fake.manager.get_pod(_CTX, _UID), None)
    stopped = [args[0].split("_")[-2] for args in fake.runtime.requests("StopContainer")]
    assert stopped == ["main", "second", "first"]


def test_get_pods_are_newest_first(fake: testing.TestRuntime) -> None:
    fake.runtime.set_fake_sandboxes(
        runtimeapi.PodSandboxStatus(
            id=f"sandbox{i}",
            created_at=created,
            metadata=runtimeapi.PodSandboxMetadata(name=f"pod{i}", namespace="ns", uid=f"uid{i}"),
        )
        for i, created in enumerate([2, 30, 11])
    )
    assert [pod.name for pod in fake.manager.get_pods(_CTX, True)] == ["pod1", "pod2", "pod0"]


def test_get_pods_groups_containers_and_leaves_out_what_ended(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    fake.runtime.exit_container(f"{_SANDBOX}_foo1_0", 0)
    (every,) = fake.manager.get_pods(_CTX, True)
    (running,) = fake.manager.get_pods(_CTX, False)
    assert sorted(c.name for c in every.containers) == ["foo1", "foo2"]
    assert [c.name for c in running.containers] == ["foo2"]
    assert [s.id.id for s in every.sandboxes] == [_SANDBOX]


def test_get_pod_not_found(fake: testing.TestRuntime) -> None:
    with pytest.raises(kubecontainer.ErrPodNotFound):
        fake.manager.get_pod(_CTX, types.UID("unknown"))


def test_get_pod_status_leaves_out_what_was_removed_meanwhile(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    listed = fake.manager.get_pod(_CTX, _UID)
    fake.runtime.remove_container(_CTX, f"{_SANDBOX}_foo1_0")
    status = fake.manager.get_pod_status(_CTX, listed)
    assert [s.name for s in status.container_statuses] == ["foo2"]
    assert status.ips == [critesting.FAKE_POD_SANDBOX_IP]
    assert status.time_stamp == listed.timestamp
    assert [s.name for s in status.active_container_statuses] == ["foo2"]
    fake.runtime.remove_pod_sandbox(_CTX, _SANDBOX)
    assert fake.manager.get_pod_status(_CTX, listed).sandbox_statuses == []


def test_get_pod_status_of_a_dead_sandbox_has_no_ip(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    fake.runtime.stop_pod_sandbox(_CTX, _SANDBOX)
    status = _status(fake)
    assert status.ips == []
    assert status.active_container_statuses == []


def test_get_pod_status_raises_what_the_runtime_does(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    fake.runtime.inject_error("ContainerStatus", _down())
    with pytest.raises(crierror.RemoteError, match="runtime is down"):
        _status(fake)


def test_generate_pod_status_from_an_event(fake: testing.TestRuntime) -> None:
    _sync(fake, _pod())
    event = runtimeapi.ContainerEventResponse(
        pod_sandbox_status=fake.runtime.sandboxes[_SANDBOX],
        containers_statuses=[c.status for c in fake.runtime.containers.values()],
    )
    status = fake.manager.generate_pod_status(event)
    assert (status.id, status.name, status.namespace) == (_UID, "foo", "new")
    assert status.ips == [critesting.FAKE_POD_SANDBOX_IP]
    assert {s.name for s in status.container_statuses} == {"foo1", "foo2"}


def test_sandbox_ready_is_told_between_sandbox_and_containers(fake: testing.TestRuntime) -> None:
    told: list[list[str]] = []

    def ready(ctx: golang.Context, pod: v1.Pod) -> None:
        told.append(fake.runtime.called())
        raise RuntimeError("the container starts all the same")

    fake.helper.on_pod_sandbox_ready = ready  # type: ignore[method-assign]
    assert _sync(fake, _pod()).error() is None
    assert [calls[-2:] for calls in told] == [["RunPodSandbox", "PodSandboxStatus"]]


def test_update_pod_cidr(fake: testing.TestRuntime) -> None:
    fake.manager.update_pod_cidr(_CTX, "10.0.0.0/24")
    (config,) = fake.runtime.requests("UpdateRuntimeConfig")[0]
    assert config.network_config.pod_cidr == "10.0.0.0/24"


def test_a_kill_that_is_cancelled_keeps_no_sidecar_waiting(
    fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = _pod(_container("main", "busybox"), init=[_container("sidecar", "busybox", restart_policy="Always")])
    pod.spec.termination_grace_period_seconds = 3600
    for _ in range(2):
        _sync(fake, pod)
    ctx, cancel = golang.with_cancel(_CTX)

    def stop(ctx: golang.Context, *args: object) -> None:
        cancel()
        raise crierror.RemoteCanceledError

    monkeypatch.setattr(fake.manager.runtime_service, "stop_container", stop)
    monkeypatch.setattr(fake.manager.runtime_service, "stop_pod_sandbox", stop)
    capsys.readouterr()
    result = fake.manager.kill_pod_with_sync_result(ctx, pod, fake.manager.get_pod(_CTX, _UID), None)
    failed = [str(each.target) for each in result.sync_results if each.error is not None]
    assert sorted(failed) == [_UID, "main", "sidecar"]
    assert capsys.readouterr().err == "", "a cancelled call is not logged"
