"""Test how containers are started, stopped and inspected.

Go: pkg/kubelet/kuberuntime/kuberuntime_container_test.go, kuberuntime_container_linux_test.go
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import cadvisor as cadvisorapi
from kubelet import cm
from kubelet import container as kubecontainer
from kubelet.container import testing as containertest
from kubelet.cri import errors as crierror
from kubelet.cri import testing as critesting
from kubelet.kuberuntime import (
    get_hugepage_limits_from_resources,
    helpers,
    kuberuntime_container,
    kuberuntime_container_linux,
    testing,
)
from kubelet.kuberuntime.kuberuntime_container import (
    REASON_LIVENESS_PROBE,
    StartSpec,
    ephemeral_container_start_spec,
)
from kubelet.kuberuntime.kuberuntime_sandbox_linux import SandboxLinuxMethods
from kubelet.lifecycle.handlers import HookError
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.api import resource
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as testingclock
from pkg.apimachinery.util.runtime.testing import failures, raising
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang import testing as golangtesting

_CTX = golang.background()
_ID = kubecontainer.ContainerID("fakeRuntime", "cid")


def _pod(*containers: v1.Container) -> v1.Pod:
    return v1.Pod(
        metadata=metav1.ObjectMeta(uid=types.UID("12345678"), name="bar", namespace="new"),
        spec=v1.PodSpec(containers=list(containers)),
    )


def _resources(**amounts: str) -> v1.ResourceRequirements:
    """Return requirements from arguments such as requests_cpu="100m"; two underscores stand for a hyphen."""
    result = v1.ResourceRequirements()
    for key, text in amounts.items():
        kind, name = key.split("_", 1)
        getattr(result, kind)[name.replace("__", "-")] = resource.must_parse(text)
    return result


@pytest.fixture
def v2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: True)


@pytest.fixture
def cgroup1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: False)


def _put(fake: testing.TestRuntime, **fields: Any) -> runtimeapi.ContainerStatus:
    status = runtimeapi.ContainerStatus(
        id="cid",
        metadata=runtimeapi.ContainerMetadata(name="foo"),
        image=runtimeapi.ImageSpec(image="busybox"),
        state=runtimeapi.CONTAINER_EXITED,
        labels={
            "io.kubernetes.pod.name": "bar",
            "io.kubernetes.pod.namespace": "new",
            "io.kubernetes.pod.uid": "12345678",
            "io.kubernetes.container.name": "foo",
        },
        **fields,
    )
    fake.runtime.set_fake_containers([critesting.FakeContainer(status, "sandbox")])
    return status


@pytest.mark.parametrize("keep_logs", [False, True])
def test_remove_container(fake: testing.TestRuntime, keep_logs: bool) -> None:
    _put(fake)
    fake.manager.remove_container(_CTX, "cid", keep_logs)
    assert fake.runtime.containers == {}
    assert fake.os.removes == ([] if keep_logs else ["/var/log/containers/bar_new_foo-cid.log"])


def test_observer_is_told_why_a_container_is_killed(tmp_path: Path) -> None:
    observer = testing.FakeRuntimeObserver()
    fake = testing.create_test_runtime_manager(str(tmp_path), runtime_observer=observer)
    _put(fake)
    fake.manager.kill_container(_CTX, _pod(v1.Container(name="foo")), _ID, "foo", "", REASON_LIVENESS_PROBE, None, None)
    assert observer.kills == [(_pod().metadata.uid, "foo", "LivenessProbe")]


def test_kill_container_that_the_pod_does_not_have(fake: testing.TestRuntime) -> None:
    with pytest.raises(LookupError, match='failed to get containerSpec "empty_container"'):
        fake.manager.kill_container(_CTX, _pod(), _ID, "empty_container", "why", "", None, None)


_PROBE = v1.Probe(termination_grace_period_seconds=10)
_LONG_PROBE = v1.Probe(termination_grace_period_seconds=60)


@pytest.mark.parametrize(
    ("pod_seconds", "probes", "reason", "expected"),
    [
        (None, {}, "Unknown", 2),
        (60, {}, "Unknown", 60),
        (60, {"liveness_probe": _PROBE}, "LivenessProbe", 10),
        (60, {"startup_probe": _PROBE}, "StartupProbe", 10),
        (10, {"startup_probe": _LONG_PROBE}, "StartupProbe", 60),
        (10, {"liveness_probe": _LONG_PROBE}, "LivenessProbe", 60),
        (60, {"liveness_probe": _PROBE}, "Unknown", 60),
        (60, {"startup_probe": _PROBE}, "Unknown", 60),
        (60, {"startup_probe": _PROBE}, "LivenessProbe", 60),
        (60, {"startup_probe": _PROBE, "liveness_probe": _LONG_PROBE}, "StartupProbe", 10),
        (0, {}, "Unknown", 0),
    ],
)
def test_termination_grace_period(
    pod_seconds: int | None, probes: dict[str, v1.Probe], reason: str, expected: int
) -> None:
    container = v1.Container(name="foo", **probes)  # type: ignore[arg-type]
    pod = _pod(container)
    pod.spec.termination_grace_period_seconds = pod_seconds
    got = kuberuntime_container.set_termination_grace_period(pod, container, _ID, reason)
    assert got == expected


def test_deletion_grace_period_comes_first() -> None:
    pod = _pod(v1.Container(name="foo", liveness_probe=_PROBE))
    pod.spec.termination_grace_period_seconds = 60
    pod.metadata.deletion_grace_period_seconds = 0
    got = kuberuntime_container.set_termination_grace_period(pod, pod.spec.containers[0], _ID, "LivenessProbe")
    assert got == 0


class TestPreStop:
    """Test the hook that runs before a container is stopped."""

    def _pod(self) -> v1.Pod:
        handler = v1.LifecycleHandler(exec=v1.ExecAction(command=["true"]))
        pod = _pod(v1.Container(name="foo", lifecycle=v1.Lifecycle(pre_stop=handler)))
        pod.spec.termination_grace_period_seconds = 30
        return pod

    def _kill(self, fake: testing.TestRuntime, override: int | None = None) -> int:
        _put(fake)
        fake.manager.kill_container(_CTX, self._pod(), _ID, "foo", "", "Unknown", override, None)
        seconds: int = fake.runtime.requests("StopContainer")[0][1]
        return seconds

    def test_runs_and_its_time_is_taken_off(self, tmp_path: Path) -> None:
        clock = testingclock.FakeClock()

        class Runner(testing.FakeCommandRunner):
            def run(self, *args: Any) -> str:
                clock.step(12)
                return super().run(*args)

        runner = Runner()
        fake = testing.create_test_runtime_manager(str(tmp_path), clock, runner)
        assert self._kill(fake) == 18
        assert len(runner.handlers) == 1

    def test_is_waited_for_no_longer_than_the_grace_period(self, tmp_path: Path) -> None:
        clock = testingclock.FakeClock()
        fake: testing.TestRuntime
        stopped_before_end: golang.Channel[bool] = golang.Channel(1)

        class Runner(testing.FakeCommandRunner):
            def run(self, ctx: golang.Context, *args: Any) -> str:
                clock.step(31)
                ctx.done().recv(timeout=30)
                stopped_before_end.send(bool(fake.runtime.requests("StopContainer")))
                raise HookError(RuntimeError("canceled"), "canceled")

        fake = testing.create_test_runtime_manager(str(tmp_path), clock, Runner())
        assert self._kill(fake) == 2
        assert stopped_before_end.recv(timeout=30) == (True, True), "the hook runs until its container has stopped"
        assert fake.recorder.drain() == [
            "Normal Killing Stopping container foo",
            "Warning FailedPreStopHook PreStopHook failed: not completed in grace period of 30s",
        ]

    def test_failure_is_told_and_the_container_stopped(self, tmp_path: Path) -> None:
        runner = testing.FakeCommandRunner(HookError(RuntimeError("exit 1"), "secret output"))
        fake = testing.create_test_runtime_manager(str(tmp_path), runner=runner)
        assert self._kill(fake) == 30
        assert fake.recorder.drain() == [
            "Normal Killing Stopping container foo",
            "Warning FailedPreStopHook PreStopHook failed",
        ]

    def test_runs_without_a_thread_of_its_own(self, tmp_path: Path) -> None:
        runner = testing.FakeCommandRunner()
        fake = testing.create_test_runtime_manager(str(tmp_path), runner=runner)
        with golangtesting.out_of_threads("prestop-") as refused:
            assert self._kill(fake) == 30
        assert (len(refused), len(runner.handlers)) == (1, 1)

    @failures
    def test_whose_failure_cannot_be_told_does_not_keep_the_container(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, err: Exception
    ) -> None:
        fake = testing.create_test_runtime_manager(str(tmp_path), runner=testing.FakeCommandRunner(err))
        monkeypatch.setattr(fake.recorder, "event", raising(err))
        assert self._kill(fake) == 30

    def test_does_not_run_without_grace_period(self, tmp_path: Path) -> None:
        runner = testing.FakeCommandRunner()
        fake = testing.create_test_runtime_manager(str(tmp_path), runner=runner)
        assert self._kill(fake, override=0) == 2
        assert runner.handlers == []


def test_container_status(fake: testing.TestRuntime) -> None:
    status = runtimeapi.ContainerStatus(
        id="cid",
        image=runtimeapi.ImageSpec(image="busybox", runtime_handler="kata"),
        image_ref="ref",
        created_at=1_000_000_000,
        started_at=2_000_000_000,
        finished_at=3_000_000_000,
        state=runtimeapi.CONTAINER_RUNNING,
        exit_code=7,
        reason="Why",
        labels={"io.kubernetes.container.name": "foo"},
        annotations={"io.kubernetes.container.hash": "ff", "io.kubernetes.container.restartCount": "3"},
        stop_signal=runtimeapi.SIGRTMINPLUS3,
        user=runtimeapi.ContainerUser(linux=runtimeapi.LinuxContainerUser(uid=1, gid=2)),
        mounts=[runtimeapi.Mount(container_path="/a", readonly=True)],
    )
    assert fake.manager.to_kube_container_status(types.UID("uid"), status).stop_signal is None, (
        "the feature is off by default"
    )
    with set_feature_gate_during_test(features.feature_gate, features.CONTAINER_STOP_SIGNALS, True):
        got = fake.manager.to_kube_container_status(types.UID("uid"), status)
    assert (got.name, got.hash, got.restart_count, got.image_id) == ("foo", 255, 3, "ref")
    assert got.state is kubecontainer.CONTAINER_STATE_RUNNING
    assert got.started_at is not None and got.started_at.timestamp() == 2
    assert (got.finished_at, got.exit_code, got.reason) == (None, 0, "")
    assert got.stop_signal == "SIGRTMIN+3"
    assert got.user == kubecontainer.ContainerUser(kubecontainer.LinuxContainerUser(1, 2, []))
    assert got.mounts[0].read_only and got.mounts[0].image is None
    status.state = runtimeapi.CONTAINER_EXITED
    status.image_id = "id"
    got = fake.manager.to_kube_container_status(types.UID("uid"), status)
    assert got.finished_at is not None and got.finished_at.timestamp() == 3
    assert (got.exit_code, got.reason, got.image_id) == (7, "Why", "id")
    status.state = runtimeapi.CONTAINER_CREATED
    assert fake.manager.to_kube_container_status(types.UID("uid"), status).started_at is None


class TestTerminationMessage:
    """Test the sources of termination messages."""

    def _convert(self, fake: testing.TestRuntime, tmp_path: Path, policy: str, **fields: Any) -> str:
        status = runtimeapi.ContainerStatus(
            id="cid",
            state=runtimeapi.CONTAINER_EXITED,
            log_path=str(tmp_path / "0.log"),
            annotations={
                "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
                "io.kubernetes.container.terminationMessagePolicy": policy,
            },
            mounts=[runtimeapi.Mount(container_path="/dev/termination-log", host_path=str(tmp_path / "message"))],
            **fields,
        )
        return fake.manager.convert_to_kube_container_status(_CTX, types.UID("uid"), status).message

    def test_file(self, fake: testing.TestRuntime, tmp_path: Path) -> None:
        (tmp_path / "message").write_bytes(b"x" * 5000 + b"end")
        message = self._convert(fake, tmp_path, "File", message="runtime says", exit_code=1)
        assert message == "runtime says: " + "x" * 4093 + "end"

    @pytest.mark.parametrize(
        ("policy", "exit_code", "reason", "expected"),
        [
            ("FallbackToLogsOnError", 1, "Error", "last line\n"),
            ("FallbackToLogsOnError", 0, "Completed", ""),
            ("FallbackToLogsOnError", 128, "ContainerCannotRun", ""),
            ("File", 1, "Error", ""),
        ],
    )
    def test_log(
        self,
        fake: testing.TestRuntime,
        tmp_path: Path,
        policy: str,
        exit_code: int,
        reason: str,
        expected: str,
    ) -> None:
        (tmp_path / "message").touch()
        line = "2016-10-06T00:17:09.669794202Z stdout F last line\n"
        (tmp_path / "0.log").write_text(line)
        assert self._convert(fake, tmp_path, policy, exit_code=exit_code, reason=reason) == expected

    def test_log_is_cut(self, fake: testing.TestRuntime, tmp_path: Path) -> None:
        prefix = "2016-10-06T00:17:09.669794202Z stderr F "
        (tmp_path / "0.log").write_text("".join(f"{prefix}{i:099}\n" for i in range(200)))
        message = self._convert(fake, tmp_path, "FallbackToLogsOnError", exit_code=1)
        assert len(message) == 2048
        assert message.endswith("199\n")

    def test_missing_log_is_told(self, fake: testing.TestRuntime, tmp_path: Path) -> None:
        message = self._convert(fake, tmp_path, "FallbackToLogsOnError", exit_code=1)
        assert message.startswith("Error on reading termination message from logs: ")


def test_start_spec_target() -> None:
    status = kubecontainer.PodStatus(container_statuses=[kubecontainer.Status(id=_ID, name="target")])
    spec = ephemeral_container_start_spec(v1.EphemeralContainer(name="debug", target_container_name="target"))
    assert spec.container.name == "debug"
    assert spec.get_target_id(status) == _ID
    assert StartSpec(v1.Container(name="foo")).get_target_id(status) is None
    with pytest.raises(LookupError, match="unable to find target container target"):
        spec.get_target_id(kubecontainer.PodStatus())


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], 0),
        (["0.log", "1.log", "0.log.20060102-150405"], 2),
        (["2.log.20220221-111111.gz"], 3),
        (["0.log", "a12.log", "rotated.log"], 1),
        (["5.log", "10.log"], 11),
    ],
)
def test_restart_count_by_log_dir(tmp_path: Path, files: list[str], expected: int) -> None:
    for name in files:
        (tmp_path / name).touch()
    (tmp_path / "99.log").mkdir()
    assert kuberuntime_container.calc_restart_count_by_log_dir(str(tmp_path)) == expected


def test_restart_count_without_log_dir(tmp_path: Path) -> None:
    assert kuberuntime_container.calc_restart_count_by_log_dir(str(tmp_path / "none")) == 0


def test_events_name_the_container_and_not_its_id(fake: testing.TestRuntime) -> None:
    pod = _pod(v1.Container(name="foo"))
    fake.manager.record_container_event(
        pod, pod.spec.containers[0], "abc123", "Warning", "Failed", "cannot start abc123: no"
    )
    assert fake.recorder.drain() == ["Warning Failed cannot start foo: no"]


def termination_message(path: str) -> str:
    status = runtimeapi.ContainerStatus(mounts=[runtimeapi.Mount(container_path="/dev/log", host_path=path)])
    return kuberuntime_container.get_termination_message(status, "/dev/log", False).text


@pytest.mark.parametrize("kind", ["pipe", "directory", "/dev/zero", "/dev/tty", "socket", "link"])
def test_termination_message_is_read_from_files_alone(tmp_path: Path, kind: str) -> None:
    path = kind if kind.startswith("/") else str(tmp_path / kind)
    with socket.socket(socket.AF_UNIX) as listener:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            os.mkdir(path)
        elif kind == "socket":
            listener.bind(path)
        elif kind == "link":
            os.symlink("/dev/zero", path)
        message = termination_message(path)
    assert message.startswith(f"Error on reading termination log {path}: ") and "not a regular file" in message


def test_termination_message_is_the_end_of_a_file(tmp_path: Path) -> None:
    limit = kubecontainer.MAX_CONTAINER_TERMINATION_MESSAGE_LENGTH
    (tmp_path / "log").write_bytes(b"x" * 10 * limit + b"end")
    assert termination_message(str(tmp_path / "log")) == "x" * (limit - 3) + "end"
    assert termination_message(str(tmp_path / "missing")) == ""


def test_memory_for_termination_messages_stays_bounded(tmp_path: Path) -> None:
    """Memory stays bounded for endless files, whose unbounded read would never finish, and for one of 10 GiB."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10 << 30)
    program = (
        "import resource, sys\n"
        "from kubelet.cri import apis\n"
        "from kubelet.kuberuntime.logs import tail\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        assert len(tail.read_at_most(path, 4096)) == 4096\n"
        "    except OSError:\n"
        "        pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "large"), "/dev/zero", "/dev/urandom"]
    done = subprocess.run(command, check=True, capture_output=True)
    assert int(done.stdout) < 8 * 1024


def test_termination_log_is_mounted_under_a_new_name_each_time(fake: testing.TestRuntime) -> None:
    fake.helper.pod_container_dir = "/pods/x/containers/foo"
    container = v1.Container(name="foo", image="busybox", termination_message_path="dev/termination-log")

    def mount() -> runtimeapi.Mount:
        config, _ = fake.manager.generate_container_config(_CTX, container, _pod(container), 0, "", "ref", [], None, {})
        return config.mounts[-1]

    first, second = mount(), mount()
    assert first.container_path == "/dev/termination-log"
    assert os.path.dirname(first.host_path) == "/pods/x/containers/foo"
    assert first.host_path != second.host_path


def test_options_are_cleaned_up_when_the_configuration_fails(fake: testing.TestRuntime) -> None:
    cleaned: list[bool] = []
    original = fake.helper.generate_run_container_options
    fake.helper.generate_run_container_options = lambda *args: (  # type: ignore[method-assign]
        original(*args)[0],
        lambda: cleaned.append(True),
    )
    container = v1.Container(name="foo", security_context=v1.SecurityContext(run_as_non_root=True))
    with pytest.raises(ValueError, match="image will run as root"):
        fake.manager.generate_container_config(_CTX, container, _pod(container), 0, "", "ref", [], None, {})
    assert cleaned == [True]


def test_exec_url(fake: testing.TestRuntime) -> None:
    assert fake.manager.get_exec(_CTX, _ID, ["ls"], False, True, True, False) == "http://fake/exec/cid"


def test_run_in_container_joins_the_streams(fake: testing.TestRuntime) -> None:
    fake.runtime.stdout, fake.runtime.stderr = b"out", b"err"
    assert fake.manager.run_in_container(_CTX, _ID, ["ls"], 5.0) == b"outerr"


def test_logs_of_an_unknown_container(fake: testing.TestRuntime) -> None:
    with pytest.raises(LookupError, match="unable to retrieve container logs for fakeRuntime://cid"):
        fake.manager.get_container_logs(_CTX, _pod(), _ID, v1.PodLogOptions(), None, None)


def _cgroups(**overrides: Any) -> SandboxLinuxMethods:
    """Return an object that only computes the cgroup settings of containers and sandboxes."""
    values: dict[str, Any] = {
        "runtime_name": "fakeRuntime",
        "image_service": critesting.FakeImageService(),
        "seccomp_profile_root": "/seccomp",
        "runtime_helper": containertest.FakeRuntimeHelper(),
        "runtime_class_manager": None,
        "seccomp_default": False,
        "container_manager": cm.ContainerManagerStub(),
        "machine_info": cadvisorapi.MachineInfo(num_cores=8, memory_capacity=32 << 30, swap_capacity=16 << 30),
        "get_node_allocatable": lambda: {"memory": resource.must_parse("32Gi")},
        "cpu_cfs_quota": True,
        "cpu_cfs_quota_period": 0.1,
        "memory_throttling_factor": 0.9,
        "memory_reservation_policy": "None",
        "memory_swap_behavior": "NoSwap",
        "get_swap_controller_available": lambda: False,
        "single_process_oom_kill": None,
    }
    return SandboxLinuxMethods(**(values | overrides))


@pytest.mark.usefixtures("cgroup1")
@pytest.mark.parametrize(
    ("request_", "cpu", "memory", "expected"),
    [
        ("1", "2", "128Mi", (1024, 200000, 134217728)),
        ("2", "4", "", (2048, 400000, 0)),
        ("", "2", "128Mi", (2048, 200000, 134217728)),
        ("0", "0", "", (2, 0, 0)),
        ("1m", "5m", "", (2, 1000, 0)),
        ("300", "", "", (262144, 0, 0)),
    ],
)
def test_calculate_linux_resources(request_: str, cpu: str, memory: str, expected: tuple[int, int, int]) -> None:
    got = _cgroups().calculate_linux_resources(
        resource.must_parse(request_) if request_ else None,
        resource.must_parse(cpu or "0"),
        resource.must_parse(memory or "0"),
    )
    assert (got.cpu_shares, got.cpu_quota, got.memory_limit_in_bytes) == expected
    assert got.cpu_period == 100000
    assert not got.unified


@pytest.mark.parametrize(
    ("unified", "single", "expected"),
    [(True, False, {"memory.oom.group": "1"}), (True, True, {}), (True, None, {}), (False, False, {})],
)
def test_oom_group(
    monkeypatch: pytest.MonkeyPatch,
    unified: bool,
    single: bool | None,
    expected: dict[str, str],
) -> None:
    monkeypatch.setattr(cm, "is_cgroup2_unified_mode", lambda: unified)
    zero = resource.new_quantity(0)
    assert (
        dict(_cgroups(single_process_oom_kill=single).calculate_linux_resources(zero, zero, zero).unified) == expected
    )


@pytest.mark.usefixtures("cgroup1")
def test_pod_level_limits_fill_in_for_the_containers() -> None:
    cgroups = _cgroups()
    own = v1.Container(name="own", resources=_resources(limits_cpu="1", limits_memory="1Gi"))
    bare = v1.Container(name="bare")
    pod = _pod(own, bare)
    pod.spec.resources = _resources(limits_cpu="4", limits_memory="8Gi")
    got = [cgroups.generate_linux_container_resources(pod, c, False) for c in (own, bare)]
    assert [(r.cpu_quota, r.memory_limit_in_bytes) for r in got] == [(100000, 1 << 30), (400000, 8 << 30)]


@pytest.mark.usefixtures("v2")
@pytest.mark.parametrize(
    ("resources", "policy", "expected"),
    [
        (
            {"requests_memory": "128Mi", "limits_memory": "256Mi"},
            "TieredReservation",
            {"memory.low": "134217728", "memory.high": "255013683"},
        ),
        ({"requests_memory": "128Mi"}, "TieredReservation", {"memory.low": "134217728", "memory.high": None}),
        (
            {"requests_memory": "128Mi", "limits_memory": "256Mi"},
            "None",
            {"memory.min": "0", "memory.low": "0", "memory.high": "255013683"},
        ),
        (
            {
                "requests_memory": "1Gi",
                "limits_memory": "1Gi",
                "requests_cpu": "1",
                "limits_cpu": "1",
            },
            "TieredReservation",
            {"memory.min": "1073741824"},
        ),
    ],
)
def test_memory_qos(resources: dict[str, str], policy: str, expected: dict[str, str | None]) -> None:
    cgroups = _cgroups(memory_reservation_policy=policy)
    container = v1.Container(name="foo", resources=_resources(**resources))
    pod = _pod(container)
    got = dict(cgroups.generate_linux_container_resources(pod, container, True).unified)
    page = os.sysconf("SC_PAGESIZE")
    if expected.get("memory.high", "") is None:
        request, node = 128 << 20, 32 << 30
        expected = expected | {"memory.high": str(int(request + (node - request) * 0.9))}
    if "memory.high" in expected:
        expected = expected | {"memory.high": str(int(expected["memory.high"] or 0) // page * page)}
    assert got == expected


_BURSTABLE = {"requests_memory": "1Gi", "limits_memory": "2Gi"}


@pytest.mark.usefixtures("v2")
@pytest.mark.parametrize(
    ("resources", "behavior", "available", "expected"),
    [
        (_BURSTABLE, "LimitedSwap", True, {"memory.swap.max": str((16 << 30) // 32)}),
        (_BURSTABLE, "NoSwap", True, {"memory.swap.max": "0"}),
        (_BURSTABLE, "", True, {"memory.swap.max": "0"}),
        (_BURSTABLE, "LimitedSwap", False, {}),
        ({"requests_memory": "1Gi", "limits_memory": "1Gi"}, "LimitedSwap", True, {"memory.swap.max": "0"}),
        ({"requests_cpu": "1"}, "LimitedSwap", True, {"memory.swap.max": "0"}),
        ({}, "LimitedSwap", True, {"memory.swap.max": "0"}),
    ],
)
def test_swap(resources: dict[str, str], behavior: str, available: bool, expected: dict[str, str]) -> None:
    cgroups = _cgroups(memory_swap_behavior=behavior, get_swap_controller_available=lambda: available)
    container = v1.Container(name="foo", resources=_resources(**resources))
    got = cgroups.generate_linux_container_resources(_pod(container), container, False)
    assert dict(got.unified) == expected


@pytest.mark.usefixtures("v2")
def test_critical_pods_do_not_swap() -> None:
    cgroups = _cgroups(memory_swap_behavior="LimitedSwap", get_swap_controller_available=lambda: True)
    container = v1.Container(name="foo", resources=_resources(**_BURSTABLE))
    pod = _pod(container)
    pod.spec.priority = 2_000_000_000
    assert cgroups.get_container_swap_behavior(pod, container) == "NoSwap"


@pytest.mark.usefixtures("cgroup1")
def test_no_swap_on_cgroup_v1_is_the_memory_limit() -> None:
    cgroups = _cgroups(get_swap_controller_available=lambda: True)
    container = v1.Container(name="foo", resources=_resources(**_BURSTABLE))
    got = cgroups.generate_linux_container_resources(_pod(container), container, False)
    assert got.memory_swap_limit_in_bytes == 2 << 30


@pytest.mark.parametrize(
    ("request_", "memory", "swap", "expected"), [(1 << 30, 4 << 30, 8 << 30, 2 << 30), (0, 1, 1, 0)]
)
def test_calc_swap(request_: int, memory: int, swap: int, expected: int) -> None:
    got = kuberuntime_container_linux.calc_swap_for_burstable_pods(request_, memory, swap)
    assert got == expected


@pytest.mark.parametrize(("request_", "memory"), [(1, 0), (2, 1)])
def test_calc_swap_refuses_nonsense(request_: int, memory: int) -> None:
    with pytest.raises(ValueError, match="memory"):
        kuberuntime_container_linux.calc_swap_for_burstable_pods(request_, memory, 1)


@pytest.mark.parametrize(
    ("pod_limits", "limits", "expected"),
    [
        ({}, {}, {"2MB": 0, "1GB": 0}),
        ({}, {"limits_hugepages__2Mi": "100Mi"}, {"2MB": 104857600, "1GB": 0}),
        ({}, {"limits_hugepages__2Mi": "2Mi", "limits_hugepages__1Gi": "1Gi"}, {"2MB": 2097152, "1GB": 1 << 30}),
        ({"limits_hugepages__2Mi": "8Mi"}, {}, {"2MB": 8388608, "1GB": 0}),
        ({"limits_hugepages__2Mi": "8Mi"}, {"limits_hugepages__2Mi": "2Mi"}, {"2MB": 2097152, "1GB": 0}),
        ({}, {"limits_hugepages__4Mi": "4Mi"}, {"2MB": 0, "1GB": 0}),
    ],
)
def test_hugepage_limits(
    monkeypatch: pytest.MonkeyPatch,
    pod_limits: dict[str, str],
    limits: dict[str, str],
    expected: dict[str, int],
) -> None:
    monkeypatch.setattr(kuberuntime_container_linux, "huge_page_sizes", lambda: ["2MB", "1GB"])
    pod = _pod()
    pod.spec.resources = _resources(**pod_limits) if pod_limits else None
    got = get_hugepage_limits_from_resources(pod, _resources(**limits))
    assert {limit.page_size: limit.limit for limit in got} == expected


@pytest.mark.parametrize(
    ("host_pid", "shared", "target", "expected"),
    [
        (False, None, False, runtimeapi.CONTAINER),
        (False, True, False, runtimeapi.POD),
        (True, None, False, runtimeapi.NODE),
        (False, None, True, runtimeapi.TARGET),
        (False, True, True, runtimeapi.POD),
        (True, None, True, runtimeapi.NODE),
    ],
)
def test_pid_namespace(
    fake: testing.TestRuntime, host_pid: bool, shared: bool | None, target: bool, expected: int
) -> None:
    container = v1.Container(name="foo")
    pod = _pod(container)
    pod.spec.host_pid = host_pid
    pod.spec.share_process_namespace = shared
    config = fake.manager.generate_linux_container_config(container, pod, None, "", _ID if target else None, False)
    options = config.security_context.namespace_options
    assert options.pid == expected
    assert options.target_id == ("cid" if expected == runtimeapi.TARGET else "")


def test_user_namespace_mappings_reach_the_mounts(fake: testing.TestRuntime) -> None:
    fake.helper.runtime_handlers = {"": kubecontainer.RuntimeHandler(supports_user_namespaces=True)}
    container = v1.Container(name="foo", termination_message_path="/dev/termination-log")
    fake.helper.pod_container_dir = "/pods/x/containers/foo"
    pod = _pod(container)
    pod.spec.host_users = False
    config, _ = fake.manager.generate_container_config(_CTX, container, pod, 0, "", "ref", [], None, {})
    assert [(m.host_id, m.length) for m in config.mounts[0].uidMappings] == [(65536, 65536)]
    assert config.mounts[0].gidMappings == config.mounts[0].uidMappings


@pytest.mark.parametrize(("shares", "expected"), [(2, 2), (100, 98), (512, 500), (1024, 1000), (1, 0), (0, 0)])
def test_shares_to_milli_cpu(shares: int, expected: int) -> None:
    assert cm.shares_to_milli_cpu(shares) == expected


@pytest.mark.parametrize(("quota", "period", "expected"), [(50000, 100000, 500), (-1, 100000, 0), (1000, 100000, 10)])
def test_quota_to_milli_cpu(quota: int, period: int, expected: int) -> None:
    assert cm.quota_to_milli_cpu(quota, period) == expected


def test_resources_that_the_runtime_reports() -> None:
    convert = kuberuntime_container_linux.to_kube_container_resources
    assert convert(runtimeapi.ContainerResources()) is None
    got = convert(
        runtimeapi.ContainerResources(
            linux=runtimeapi.LinuxContainerResources(
                cpu_period=100000, cpu_quota=50000, cpu_shares=102, memory_limit_in_bytes=1 << 20
            )
        )
    )
    assert got is not None
    assert [str(q) for q in (got.cpu_limit, got.cpu_request, got.memory_limit)] == ["500m", "100m", "1Mi"]


def test_status_message_is_without_preamble() -> None:
    err = crierror.RemoteError(grpc.StatusCode.UNKNOWN, "no such file")
    assert helpers.status_message(err) == "no such file"
    assert helpers.status_message(ValueError("plain")) == "plain"


class ExclusiveCPUs(cm.ContainerManagerStub):
    """Report that the container "pinned" has exclusive CPUs."""

    def container_has_exclusive_cpus(self, pod: v1.Pod, container: v1.Container) -> bool:
        return container.name == "pinned"

    def pod_has_exclusive_cpus(self, pod: v1.Pod) -> bool:
        return any(container.name == "pinned" for container in pod.spec.containers)


@pytest.mark.usefixtures("cgroup1")
@pytest.mark.parametrize(("gate", "pinned"), [(True, -1), (False, 200_000)])
def test_who_has_cores_of_its_own_has_no_quota(gate: bool, pinned: int) -> None:
    cgroups = _cgroups(container_manager=ExclusiveCPUs())
    own, shared = (
        v1.Container(name=name, resources=_resources(requests_cpu="2", limits_cpu="2")) for name in ("pinned", "c")
    )
    pod = _pod(own, shared)
    with set_feature_gate_during_test(features.feature_gate, features.DISABLE_CPU_QUOTA_WITH_EXCLUSIVE_CPUS, gate):
        quotas = [cgroups.generate_linux_container_resources(pod, c, False).cpu_quota for c in (own, shared)]
        assert quotas == [pinned, 200_000]
        assert cgroups.calculate_sandbox_resources(pod).cpu_quota == (pinned if gate else 400_000)
        assert cgroups.calculate_sandbox_resources(_pod(shared)).cpu_quota == 200_000


class TestKillContainers:
    """Test the kill of all containers of a pod."""

    def _kill(self, fake: testing.TestRuntime, mains: list[str], sidecars: list[str]) -> list[kubecontainer.SyncResult]:
        """Kill the containers; the runtime lists them in another order than the spec."""
        pod = _pod(*(v1.Container(name=name) for name in mains))
        always = v1.CONTAINER_RESTART_POLICY_ALWAYS
        pod.spec.init_containers = [v1.Container(name=name, restart_policy=always) for name in sidecars]
        pod.spec.termination_grace_period_seconds = 0
        names = [*reversed(sidecars), *mains]
        containers = [
            kubecontainer.Container(id=kubecontainer.ContainerID("test", f"id-{name}"), name=name) for name in names
        ]
        running = kubecontainer.Pod(id=types.UID("12345678"), name="bar", namespace="new", containers=containers)
        statuses = [runtimeapi.ContainerStatus(id=f"id-{name}", state=runtimeapi.CONTAINER_RUNNING) for name in names]
        fake.runtime.set_fake_containers(critesting.FakeContainer(status, "sandbox") for status in statuses)
        return fake.manager.kill_containers_with_sync_result(_CTX, pod, running, None)

    def test_one_after_the_other_without_threads(self, fake: testing.TestRuntime) -> None:
        with golangtesting.out_of_threads("kill-"):
            results = self._kill(fake, ["main", "other"], ["log", "proxy"])
        assert [(result.target, result.error) for result in results] == [
            (name, None) for name in ("proxy", "log", "main", "other")
        ]
        stopped = [request[0] for request in fake.runtime.requests("StopContainer")]
        assert stopped == ["id-main", "id-other", "id-proxy", "id-log"]

    def test_of_a_pod_with_many_does_not_take_all_threads(
        self, fake: testing.TestRuntime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        count = kuberuntime_container.MAX_PARALLEL_KILLS + 50
        started: list[str] = []
        start = golang.Thread.start

        def note(thread: golang.Thread) -> None:
            started.append(thread.name)
            start(thread)

        monkeypatch.setattr(golang.Thread, "start", note)
        results = self._kill(fake, [f"c{i}" for i in range(count)], [])
        assert [result.error for result in results] == [None] * count
        assert len(fake.runtime.requests("StopContainer")) == count
        assert len(started) == kuberuntime_container.MAX_PARALLEL_KILLS - 1

    def test_of_a_cancelled_context_are_told_so(self, fake: testing.TestRuntime) -> None:
        ctx, cancel = golang.with_cancel(_CTX)
        cancel()
        containers = [kubecontainer.Container(id=_ID, name="foo")]
        running = kubecontainer.Pod(id=types.UID("12345678"), name="bar", namespace="new", containers=containers)
        fake.runtime.inject_error("StopContainer", golang.Canceled())
        pod = _pod(v1.Container(name="foo"))
        (result,) = fake.manager.kill_containers_with_sync_result(ctx, pod, running, None)
        assert isinstance(result.error, kubecontainer.ErrKillContainer)
