"""Test the parts of the kubelet's start that need no kubelet.

Go: cmd/kubelet/app/server_test.go, server_linux.go
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from kubelet_cmd.kubelet.app import lockfile, options, server

from kubelet import kubelet_dependencies, oom
from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cri.errors import RemoteError
from pkg import golang
from pkg.apimachinery.util.runtime.testing import raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.golang.testing import closes
from pkg.utils import cpuset

_DOWN = grpc.StatusCode.UNAVAILABLE


def _server() -> options.KubeletServer:
    return options.KubeletServer(options.KubeletFlags(), options.new_kubelet_configuration())


class _Runtime:
    """Return one response after another."""

    def __init__(self, *answers: runtimeapi.RuntimeConfigResponse | Exception) -> None:
        self._answers = list(answers)

    def runtime_config(self, ctx: golang.Context) -> runtimeapi.RuntimeConfigResponse:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _linux(driver: runtimeapi.CgroupDriver.ValueType) -> runtimeapi.RuntimeConfigResponse:
    return runtimeapi.RuntimeConfigResponse(linux=runtimeapi.LinuxRuntimeConfiguration(cgroup_driver=driver))


@pytest.mark.parametrize(
    ("answer", "configured", "driver"),
    [
        (_linux(runtimeapi.CgroupDriver.SYSTEMD), "cgroupfs", "systemd"),
        (_linux(runtimeapi.CgroupDriver.CGROUPFS), "systemd", "cgroupfs"),
        (runtimeapi.RuntimeConfigResponse(), "systemd", "systemd"),
        (RemoteError(grpc.StatusCode.UNIMPLEMENTED, "no such method"), "systemd", "systemd"),
    ],
)
def test_cgroup_driver(answer: runtimeapi.RuntimeConfigResponse | Exception, configured: str, driver: str) -> None:
    kubelet_server = _server()
    kubelet_server.kubelet_configuration.cgroup_driver = configured
    server.get_cgroup_driver_from_cri(golang.background(), kubelet_server, _Runtime(answer))
    assert kubelet_server.kubelet_configuration.cgroup_driver == driver


def test_a_runtime_that_starts_may_be_asked_for_its_cgroup_driver_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_RUNTIME_CONFIG_PAUSE", 0.001)
    runtime = _Runtime(*[RemoteError(_DOWN, "not now")] * 2, _linux(runtimeapi.CgroupDriver.SYSTEMD))
    kubelet_server = _server()
    kubelet_server.kubelet_configuration.cgroup_driver = "cgroupfs"
    server.get_cgroup_driver_from_cri(golang.background(), kubelet_server, runtime)
    assert kubelet_server.kubelet_configuration.cgroup_driver == "systemd"


def test_without_the_cgroup_driver_there_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kubelet does not start without the cgroup driver, because a wrong driver would end pods."""
    monkeypatch.setattr(server, "_RUNTIME_CONFIG_PAUSE", 0.001)
    runtime = _Runtime(*[RemoteError(_DOWN, f"not now {number}") for number in range(3)])
    with pytest.raises(ConnectionError, match="not now 2"):
        server.get_cgroup_driver_from_cri(golang.background(), _server(), runtime)


def test_the_pause_before_the_cgroup_driver_is_asked_for_again_ends_with_the_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        server.get_cgroup_driver_from_cri(ctx, _server(), _Runtime(RemoteError(_DOWN, "not now")))


class _Service:
    """Raise the fault if there is one."""

    def __init__(self, fault: Exception | None = None) -> None:
        self._fault = fault
        self.asked = 0

    def validate_service_connection(self, ctx: golang.Context) -> None:
        self.asked += 1
        if self._fault is not None:
            raise self._fault


@pytest.mark.parametrize(
    ("microseconds", "fault"),
    [("1000000", "configure watchdog timeout too small: 1s"), ("often", "configure watchdog: .*often")],
)
def test_watchdog_that_cannot_be_told_keeps_the_kubelet_from_starting(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, fault: str
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with pytest.raises(ValueError, match=f"create health checker: {fault}"):
        server.run(golang.background(), _server(), raising(AssertionError("this is too late")))


def test_systemd_is_told_before_anything_is_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "60000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    ctx, cancel = golang.with_cancel(golang.background())

    def acquire(flags: options.KubeletFlags) -> None:
        # Another kubelet holds the lock file. This kubelet waits for the lock until systemd has been notified.
        assert systemd.recv(100) == b"WATCHDOG=1"
        raise OSError("enough")

    monkeypatch.setattr(server, "_acquire_lock_file", acquire)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd, golang.ThreadGroup() as threads:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        with pytest.raises(OSError, match="enough"):
            server.run(ctx, _server(), raising(AssertionError("this is too late")))
    cancel()
    assert threads.join(30) == []


def test_runtime_and_image_service_have_to_answer() -> None:
    runtime, images = _Service(), _Service(ConnectionError("validate service connection: Unavailable"))
    with pytest.raises(ConnectionError, match="Unavailable"):
        server.validate_runtime(golang.background(), runtime, images)
    assert (runtime.asked, images.asked) == (1, 1)
    server.validate_runtime(golang.background(), runtime, runtime)


def test_a_question_that_the_end_of_the_start_cut_short_is_no_fault() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    cancel()
    with pytest.raises(golang.Canceled):
        server.validate_runtime(ctx, _Service(ConnectionError("context canceled")))


def test_without_a_server_nobody_has_to_be_asked_who_he_is(tmp_path: Path) -> None:
    kubelet_server = _server()
    kubelet_server.kubelet_flags.cert_directory = str(tmp_path)
    kc = kubelet_server.kubelet_configuration
    kc.authentication.webhook.enabled = True
    with pytest.raises(ValueError, match="no client provided, cannot use webhook authentication"):
        server.connect_to_api_server(golang.background(), kubelet_server)
    kc.enable_server = False
    dependencies = SimpleNamespace()
    server.connect_to_api_server(golang.background(), kubelet_server)(
        cast(kubelet_dependencies.Dependencies, dependencies)
    )
    assert (dependencies.auth, dependencies.tls_options) == (None, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cpu": "200m", "memory": "150G", "ephemeral-storage": "10Gi", "pid": "100"}, ""),
        (
            {"memory": "150GBI"},
            '--kube-reserved value failed to parse: failed to parse quantity "150GBI" for "memory"',
        ),
        ({"storage": "1"}, '--kube-reserved value failed to parse: cannot reserve "storage" resource'),
        (
            {"cpu": "-1"},
            '--kube-reserved value failed to parse: resource quantity for "cpu" cannot be negative: -1',
        ),
    ],
)
def test_resource_list(values: dict[str, str], message: str) -> None:
    if not message:
        parsed = server.parse_resource_list(values, "--kube-reserved")
        assert parsed["cpu"].milli_value() == 200
        assert parsed.keys() == values.keys()
        return
    with pytest.raises(ValueError) as caught:
        server.parse_resource_list(values, "--kube-reserved")
    assert str(caught.value).startswith(message)


def _machine(cpus: int) -> cadvisorapi.MachineInfo:
    cores = tuple(cadvisorapi.Core(id=cpu, threads=(cpu,)) for cpu in range(cpus))
    node = cadvisorapi.Node(id=0, cores=cores)
    return cadvisorapi.MachineInfo(num_cores=cpus, memory_capacity=0, num_sockets=1, topology=(node,))


def test_reserved_cpus() -> None:
    assert server.get_reserved_cpus(_machine(4), "0,2-3") == cpuset.new(0, 2, 3)


@pytest.mark.parametrize(
    ("cpus", "text", "message"),
    [
        (0, "0", "unable to discover CPU topology info: could not detect number of cpus"),
        (4, "first", 'unable to parse reserved-cpus list: strconv.Atoi: parsing "first": invalid syntax'),
        (4, "3-4", "reserved-cpus: 3-4 is not a subset of online-cpus: 0-3"),
    ],
)
def test_reserved_cpus_that_cannot_be_had(cpus: int, text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        server.get_reserved_cpus(_machine(cpus), text)
    assert str(caught.value) == message


def test_the_lock_file_is_given_up_when_another_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    done: golang.Channel[None] = golang.Channel()
    lockfile.watch_for_lockfile_contention(str(path), done)
    assert golang.select(done, default=True).case is None
    path.read_text()
    assert closes(done)


def test_a_lock_file_that_cannot_be_watched(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="unable to watch lock file"):
        lockfile.watch_for_lockfile_contention(str(tmp_path / "none"), golang.Channel())


@pytest.mark.parametrize(
    ("swaps", "fail", "refused"),
    [
        ("Filename\tType\n", True, False),
        ("Filename\tType\n/dev/sda2 partition\n", True, True),
        ("Filename\tType\n/dev/sda2 partition\n", False, False),
        (None, True, False),
    ],
)
def test_swap(tmp_path: Path, swaps: str | None, fail: bool, refused: bool) -> None:
    path = tmp_path / "swaps"
    if swaps is not None:
        path.write_text(swaps)
    kubelet_server = _server()
    kubelet_server.kubelet_configuration.fail_swap_on = fail
    if not refused:
        server.check_swap(kubelet_server, str(path))
        return
    with pytest.raises(ValueError, match="running with swap on is not supported"):
        server.check_swap(kubelet_server, str(path))


@pytest.mark.parametrize("unified", [False, True])
def test_limited_swap_needs_version_2_of_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unified: bool
) -> None:
    monkeypatch.setattr("kubelet.util.is_cgroup2_unified_mode", lambda: unified)
    kubelet_server = _server()
    kubelet_server.kubelet_configuration.memory_swap.swap_behavior = "LimitedSwap"
    if unified:
        server.check_swap(kubelet_server, str(tmp_path / "none"))
        return
    with pytest.raises(ValueError, match="LimitedSwap but it is only supported with cgroupv2"):
        server.check_swap(kubelet_server, str(tmp_path / "none"))


def test_kernel_log_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A kubelet that may not read the kernel log starts without OOM events, and logs a message."""

    def refuse(recorder: object) -> None:
        raise PermissionError(1, "Operation not permitted", "/dev/kmsg")

    monkeypatch.setattr(oom, "OomWatcher", refuse)

    assert server._new_oom_watcher(FakeRecorder(1)) is None
    assert "Operation not permitted: '/dev/kmsg'" in capsys.readouterr().err
