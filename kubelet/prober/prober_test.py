"""Test single probes: their requests, the meaning of the responses, and the events."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from framework.waiting import wait_for

from kubelet.cri import errors as crierrors
from kubelet.prober import results
from kubelet.prober.prober import Prober, ProbeType
from kubelet.prober.testing import CONTAINER_ID, FakeRunner
from pkg import golang, probe
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.util import exec as utilexec
from pkg.util.testing import open_files

CTX = golang.background()
POD = v1.Pod(metadata=metav1.ObjectMeta(name="p", namespace="ns", uid=types.UID("u")))


class World:
    def __init__(self) -> None:
        self.runner = FakeRunner()
        self.recorder = FakeRecorder(10)
        self.prober = Prober(self.runner, self.recorder)

    def probe(
        self, spec: v1.Probe | None, *env: v1.EnvVar, probe_type: ProbeType = ProbeType.LIVENESS
    ) -> results.Result:
        container = v1.Container(name="c", env=list(env))
        setattr(container, f"{probe_type.lower()}_probe", spec)
        pod = v1.deepcopy(POD)
        pod.spec.containers = [container]
        status = v1.PodStatus(pod_ip="127.0.0.1")
        return self.prober.probe(CTX, probe_type, pod, status, container, CONTAINER_ID)

    def events(self) -> list[str]:
        return self.recorder.drain()


@pytest.fixture
def world() -> World:
    return World()


def command(*words: str) -> v1.Probe:
    return v1.Probe(exec=v1.ExecAction(command=list(words)), timeout_seconds=3)


all_types = pytest.mark.parametrize("probe_type", list(ProbeType))


@all_types
def test_no_probe_is_a_success(world: World, probe_type: ProbeType) -> None:
    assert world.probe(None, probe_type=probe_type) == results.SUCCESS


@all_types
def test_probe_without_a_handler(world: World, probe_type: ProbeType) -> None:
    with pytest.raises(ValueError, match="missing probe handler for ns/p:c"):
        world.probe(v1.Probe(), probe_type=probe_type)
    assert world.events() == [
        f"Warning Unhealthy {probe_type} probe errored and resulted in unknown state: missing probe handler for ns/p:c"
    ]


@all_types
@pytest.mark.parametrize(
    ("outcome", "result", "event"),
    [
        ((probe.Result.SUCCESS, "fine"), results.SUCCESS, None),
        ((probe.Result.WARNING, "so so"), results.SUCCESS, "Warning ProbeWarning {} probe warning: so so"),
        ((probe.Result.FAILURE, "ill"), results.FAILURE, "Warning Unhealthy {} probe failed: ill"),
    ],
)
def test_meaning_of_answers(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    probe_type: ProbeType,
    outcome: tuple[probe.Result, str],
    result: results.Result,
    event: str | None,
) -> None:
    monkeypatch.setattr(probe, "probe_exec", lambda run: outcome)
    assert world.probe(command(), probe_type=probe_type) == result
    assert world.events() == ([event.format(probe_type)] if event else [])


@pytest.mark.parametrize(
    ("words", "env", "expected"),
    [
        (["/bin/bash", "-c", "some script"], [], ["/bin/bash", "-c", "some script"]),
        (
            ["/bin/bash", "-c", "some $(A) $(B)"],
            [v1.EnvVar(name="A", value="script")],
            ["/bin/bash", "-c", "some script $(B)"],
        ),
    ],
)
def test_command_is_run_in_the_container(
    world: World, words: list[str], env: list[v1.EnvVar], expected: list[str]
) -> None:
    assert world.probe(command(*words), *env) == results.SUCCESS
    assert world.runner.cmd == expected
    assert world.runner.container_id == CONTAINER_ID


def test_command_that_fails(world: World) -> None:
    world.runner.err = utilexec.CodeExitError(ValueError("exited"), 2, b"out err")
    assert world.probe(command("false")) == results.FAILURE
    assert world.events() == ["Warning Unhealthy Liveness probe failed: out err"]
    assert world.runner.runs == 1, "a failed probe is not retried"


def test_command_that_takes_too_long_is_a_failure(world: World) -> None:
    world.runner.err = utilexec.CommandTimedOutError(["sleep", "9"], 3)
    assert world.probe(command("sleep", "9")) == results.FAILURE
    assert world.events() == [
        'Warning Unhealthy Liveness probe failed: command timed out: "sleep 9" timed out after 3s'
    ]


def test_probe_that_cannot_be_carried_out_is_tried_three_times(world: World) -> None:
    world.runner.break_down()
    with pytest.raises(RuntimeError, match="runtime is down"):
        world.probe(command("true"))
    assert world.runner.runs == 3
    assert world.events() == ["Warning Unhealthy Liveness probe errored and resulted in unknown state: runtime is down"]


def test_cancelled_probe_is_not_tried_again(world: World) -> None:
    world.runner.err = golang.Canceled()
    with pytest.raises(golang.Canceled):
        world.probe(command("true"))
    assert world.runner.runs == 1
    assert world.events() == []


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        ({"http_get": v1.HTTPGetAction(port="nope")}, 'strconv.Atoi: parsing "nope": invalid syntax'),
        ({"tcp_socket": v1.TCPSocketAction(port="nope")}, 'strconv.Atoi: parsing "nope": invalid syntax'),
        ({"tcp_socket": v1.TCPSocketAction(port=0)}, "invalid port number: 0"),
    ],
)
def test_port_that_is_not_there_is_told_of(world: World, handler: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world.probe(v1.Probe(timeout_seconds=1, **handler))
    assert world.events() == [f"Warning Unhealthy Liveness probe errored and resulted in unknown state: {message}"]


@contextmanager
def mute_server() -> Iterator[int]:
    """Run a server that accepts connections and never responds; yield its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (
            lambda port: {"http_get": v1.HTTPGetAction(port=port, path="/x")},
            'Get "http://127.0.0.1:PORT/x": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
        ),
        (
            lambda port: {"http_get": v1.HTTPGetAction(port=port, scheme="HTTPS")},
            'Get "https://127.0.0.1:PORT": context deadline exceeded (Client.Timeout exceeded while awaiting headers)',
        ),
        (
            lambda port: {"grpc": v1.GRPCAction(port=port)},
            'timeout: failed to connect service "127.0.0.1:PORT" within 1s: context deadline exceeded',
        ),
        (
            lambda port: {
                "http_get": v1.HTTPGetAction(port=port, http_headers=[v1.HTTPHeader(name="X", value="a\nb")])
            },
            'Get "http://127.0.0.1:PORT": net/http: invalid header field value for "X"',
        ),
    ],
)
def test_what_cannot_succeed_is_told_of_and_leaves_nothing_open(
    world: World, handler: Callable[[int], dict[str, Any]], message: str
) -> None:
    before = open_files()
    with mute_server() as port:
        assert world.probe(v1.Probe(timeout_seconds=1, **handler(port))) == results.FAILURE
        told = world.events()
        assert len(told) == 1
        assert told[0].startswith(f"Warning Unhealthy Liveness probe failed: {message.replace('PORT', str(port))}")
    if "grpc" not in handler(1):  # A gRPC channel closes slowly, which is allowed here and has a test of its own.
        wait_for("no open file is left", lambda: open_files() <= before)


def test_answer_that_breaks_off_is_asked_for_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def break_off(url: str, *args: object) -> tuple[probe.Result, str]:
        asked.append(url)
        raise probe.BrokenAnswerError("unexpected EOF")

    monkeypatch.setattr(probe, "probe_http", break_off)
    with pytest.raises(probe.BrokenAnswerError):
        world.probe(v1.Probe(http_get=v1.HTTPGetAction(port=80), timeout_seconds=1))
    assert len(asked) == 3
    assert world.events() == ["Warning Unhealthy Liveness probe errored and resulted in failure state: unexpected EOF"]


def test_grpc_service_and_port(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def note(*args: object) -> tuple[probe.Result, str]:
        asked.append(args)
        return probe.Result.SUCCESS, ""

    monkeypatch.setattr(probe, "probe_grpc", note)
    for service in (None, "readiness"):
        world.probe(v1.Probe(grpc=v1.GRPCAction(port=81, service=service), timeout_seconds=2))
    assert [args[1:] for args in asked] == [("127.0.0.1", "", 81, 2.0), ("127.0.0.1", "readiness", 81, 2.0)]


def test_command_that_is_missing_is_told_of(world: World) -> None:
    reason = 'failed to exec in container: exec: "/none": stat /none: no such file or directory: unknown'
    world.runner.err = crierrors.RemoteError(grpc.StatusCode.UNKNOWN, reason)
    with pytest.raises(crierrors.RemoteError):
        world.probe(command("/none"))
    assert world.events() == [
        "Warning Unhealthy Liveness probe errored and resulted in unknown state: "
        f"rpc error: code = Unknown desc = {reason}"
    ]


def test_output_without_end_is_cut_in_the_event(world: World) -> None:
    world.runner.err = utilexec.CodeExitError(ValueError("exited"), 1, b"x" * 10_000_000)
    assert world.probe(command("yes")) == results.FAILURE
    assert world.events() == [f"Warning Unhealthy Liveness probe failed: {'x' * 10240}"]


def test_hosts_default_to_the_pods_address(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def note(*args: object) -> tuple[probe.Result, str]:
        asked.append(args[1:3] if isinstance(args[2], int) else args[1])
        return probe.Result.SUCCESS, ""

    monkeypatch.setattr(probe, "probe_http", note)
    monkeypatch.setattr(probe, "probe_tcp", note)
    for host in ("", "10.1.2.3"):
        world.probe(v1.Probe(http_get=v1.HTTPGetAction(port=80, host=host, path="/x")))
        world.probe(v1.Probe(tcp_socket=v1.TCPSocketAction(port=81, host=host)))
    assert asked == ["http://127.0.0.1:80/x", ("127.0.0.1", 81), "http://10.1.2.3:80/x", ("10.1.2.3", 81)]


def test_events_name_the_container_and_tell_the_probe(world: World) -> None:
    told: list[tuple[object, ...]] = []
    world.recorder.observer = lambda obj, *event: told.append((obj.field_path, *event))
    world.runner.fail()
    world.probe(command("x"))
    message = "Liveness probe failed: "
    assert told == [("spec.containers{c}", "Warning", "Unhealthy", message, (ProbeType.LIVENESS, ""))]
