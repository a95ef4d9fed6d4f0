"""Test the calls to a runtime over its socket.

Go: k8s.io/cri-client/pkg/remote_runtime_test.go
"""

from __future__ import annotations

import contextlib
import io
import socket
import tempfile
from collections.abc import Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import grpc
import pytest
from cri_api.v1 import api_pb2 as runtimeapi
from framework import memory
from framework.waiting import wait_for, wait_until_equal

from kubelet.cri import errors, remote
from kubelet.cri.remote import client, fake
from pkg import features, golang, klog
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang.testing import frames_kept_after
from pkg.util import exec as utilexec

CTX = golang.background()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[fake.FakeServer]:
    with fake.FakeServer(f"unix://{tmp_path}/cri.sock", fake.FakeRuntime(images_present=["busybox"])) as server:
        yield server


@pytest.fixture
def service(server: fake.FakeServer) -> Iterator[remote.RemoteRuntimeService]:
    service = remote.RemoteRuntimeService(CTX, server.endpoint, 30)
    yield service
    service.close(CTX)


def sandbox_config(name: str = "web") -> runtimeapi.PodSandboxConfig:
    metadata = runtimeapi.PodSandboxMetadata(name=name, namespace="default", uid=f"uid-{name}")
    return runtimeapi.PodSandboxConfig(metadata=metadata, labels={"io.kubernetes.pod.uid": f"uid-{name}"})


def container_config(*command: str, name: str = "c") -> runtimeapi.ContainerConfig:
    return runtimeapi.ContainerConfig(
        metadata=runtimeapi.ContainerMetadata(name=name),
        image=runtimeapi.ImageSpec(image="busybox"),
        command=command,
    )


def run_container(service: remote.RemoteRuntimeService, *command: str) -> tuple[str, str]:
    sandbox_id = service.run_pod_sandbox(CTX, sandbox_config(), "")
    container_id = service.create_container(CTX, sandbox_id, container_config(*command), sandbox_config())
    service.start_container(CTX, container_id)
    return sandbox_id, container_id


def test_version(service: remote.RemoteRuntimeService) -> None:
    service.validate_service_connection(CTX)
    assert service.version(CTX, "0.1.0").runtime_api_version == "v1"


def test_life_of_a_pod(service: remote.RemoteRuntimeService) -> None:
    sandbox_id, container_id = run_container(service)
    status = service.container_status(CTX, container_id, False).status
    assert status.state == runtimeapi.CONTAINER_RUNNING
    assert [s.id for s in service.list_pod_sandbox(CTX, None)] == [sandbox_id]
    assert service.pod_sandbox_status(CTX, sandbox_id, False).status.network.ip.startswith("127.")
    service.stop_container(CTX, container_id, 5)
    service.stop_pod_sandbox(CTX, sandbox_id)
    service.remove_container(CTX, container_id)
    service.remove_pod_sandbox(CTX, sandbox_id)
    assert not service.list_containers(CTX, None)
    with pytest.raises(remote.RemoteError) as raised:
        service.container_status(CTX, container_id, False)
    assert remote.is_not_found(raised.value)
    assert str(raised.value).startswith("rpc error: code = NotFound desc = ")


@contextmanager
def _listening(path: Path, reply: bytes) -> Iterator[None]:
    """Run a server that sends the same bytes to each client."""

    def serve() -> None:
        with contextlib.suppress(OSError), listener:
            while True:
                connection, _ = listener.accept()
                # A client that receives invalid gRPC closes the connection, and may connect again.
                with connection, contextlib.suppress(ConnectionError):
                    connection.sendall(reply)
                    connection.recv(1000)

    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)
    thread = golang.go(serve, name="other-server")
    yield
    listener.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def _leave_socket(path: Path) -> None:
    """Leave a socket file behind, as a killed server does."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


@pytest.mark.parametrize(
    ("make", "want"),
    [
        pytest.param(lambda path: None, "no such socket", id="missing"),
        pytest.param(lambda path: path.write_text(""), "not a socket", id="a file"),
        pytest.param(lambda path: path.mkdir(), "not a socket", id="a directory"),
        pytest.param(_leave_socket, "connection refused", id="left by a dead server"),
    ],
)
def test_runtime_that_cannot_be_reached_is_explained(tmp_path: Path, make: Any, want: str) -> None:
    path = tmp_path / "x.sock"
    make(path)
    service = remote.RemoteRuntimeService(CTX, f"unix://{path}", 30)
    with pytest.raises(ConnectionError, match=f"(?s)validate CRI v1 runtime API.*code = Unavailable.*{want}"):
        service.validate_service_connection(CTX)
    service.close(CTX)


def test_socket_of_something_else_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "x.sock"
    service = remote.RemoteRuntimeService(CTX, f"unix://{path}", 30)
    with _listening(path, b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with pytest.raises(ConnectionError, match="does not speak gRPC"):
            service.validate_service_connection(CTX)
        service.close(CTX)


def _serve(path: Path, services: tuple[str, ...]) -> Any:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    handler: Any = grpc.unary_unary_rpc_method_handler(
        lambda request, call: runtimeapi.VersionResponse(),
        response_serializer=runtimeapi.VersionResponse.SerializeToString,
    )
    for service in services:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Version": handler}),))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


@pytest.mark.parametrize(
    ("services", "want"),
    [
        pytest.param(("runtime.v1alpha2.RuntimeService",), "speaks CRI v1alpha2 only", id="old runtime"),
        pytest.param((), "the listener is not a container runtime", id="other gRPC server"),
    ],
)
def test_runtime_of_another_version_is_explained(tmp_path: Path, services: tuple[str, ...], want: str) -> None:
    server = _serve(tmp_path / "x.sock", services)
    service = remote.RemoteRuntimeService(CTX, f"unix://{tmp_path}/x.sock", 30)
    with pytest.raises(ConnectionError, match=want):
        service.validate_service_connection(CTX)
    with pytest.raises(remote.RemoteError, match=want):
        service.version(CTX, "0.1.0")
    service.close(CTX)
    server.stop(None).wait()


def test_calls_that_begin_when_the_connection_is_closed(service: remote.RemoteRuntimeService) -> None:
    """Calls after the connection is closed fail: some threads still run when the kubelet stops."""
    service.close(CTX)
    closing = r"^rpc error: code = Canceled desc = grpc: the client connection is closing$"
    with pytest.raises(remote.RemoteError, match=closing):
        service.list_pod_sandbox(CTX, None)
    with pytest.raises(remote.RemoteError, match=closing):
        service.get_container_events(CTX, golang.Channel(1), None)


def test_calls_at_once_have_a_channel_each_and_one_connection(
    server: fake.FakeServer, service: remote.RemoteRuntimeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simultaneous calls use different channels, because a call would wait for the lock of a shared channel."""
    made: list[Any] = []
    insecure_channel = grpc.insecure_channel

    def count(*args: Any, **kwargs: Any) -> Any:
        made.append(args)
        return insecure_channel(*args, **kwargs)

    monkeypatch.setattr(grpc, "insecure_channel", count)
    fault = server.runtime.faults.hang("Status")
    ctx, cancel = golang.with_cancel(CTX)

    def call() -> None:
        with contextlib.suppress(golang.Canceled):
            service.status(ctx, False)

    threads = [golang.go(call, name=f"caller-{number}") for number in range(20)]
    wait_until_equal("calls that hang", lambda: fault.waiting, 20)
    assert len(made) == 20
    assert _connections(server) == 1

    cancel()
    for thread in threads:
        thread.join(30)
    for _ in range(20):
        service.version(CTX, "")
    assert len(made) == 21, "calls that end by themselves leave their channel to the next"


def test_end_that_comes_too_late_does_nothing_to_the_next_call(
    server: fake.FakeServer, service: remote.RemoteRuntimeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late cancellation does not end the next call on the channel.

    A context that ends together with its call may run its callback when the channel already belongs to another call.
    """
    late: list[Any] = []

    def after_func(ctx: golang.Context, end: Any) -> Any:
        late.append(end)
        return lambda: False

    monkeypatch.setattr(golang, "after_func", after_func)
    for _ in range(3):
        assert service.version(CTX, "").version
        late.pop()()


def test_closing_ends_all_calls(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    fault = server.runtime.faults.hang("Status")
    failures: list[BaseException] = []

    def call() -> None:
        try:
            service.status(CTX, False)
        except remote.RemoteError as err:
            failures.append(err)

    threads = [golang.go(call, name=f"caller-{number}") for number in range(3)]
    wait_until_equal("calls that hang", lambda: fault.waiting, 3)
    service.close(CTX)
    for thread in threads:
        thread.join(30)
    assert len(failures) == 3


def end_calls_and_streams() -> None:
    """End 2,000 calls by their context while the runtime works, and 500 streams before their end."""
    with tempfile.TemporaryDirectory() as directory:
        runtime = fake.FakeRuntime(images_present=["busybox"])
        with fake.FakeServer(f"unix://{directory}/cri.sock", runtime) as server:
            _end_calls_and_streams(server)


def _end_calls_and_streams(server: fake.FakeServer) -> None:
    caller = client.GRPCClient(server.endpoint, "RuntimeService")
    fault = server.runtime.faults.hang("Status")

    def call(ctx: golang.Context) -> None:
        with contextlib.suppress(golang.Canceled):
            caller.invoke(ctx, "Status", runtimeapi.StatusRequest(), None)

    for _ in range(100):
        ctx, cancel = golang.with_cancel(CTX)
        threads = [golang.go(call, ctx, name=f"caller-{number}") for number in range(20)]
        wait_until_equal("calls that hang", lambda: fault.waiting, 20)
        cancel()
        for thread in threads:
            thread.join(30)
        wait_for("no call hangs any more", lambda: fault.waiting == 0)
    for _ in range(500):
        with caller.stream(CTX, "GetContainerEvents", runtimeapi.GetEventsRequest()):
            pass
    caller.close()


def test_calls_that_are_ended_leave_no_memory() -> None:
    assert memory.peak_growth("kubelet.cri.remote.remote_runtime_test", "end_calls_and_streams") < 24


class _Nonsense(grpc.GenericRpcHandler):
    """Respond to each call with bytes that are not a message."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff\xff")


def get_nonsense() -> None:
    """Make 1,000 calls whose responses cannot be decoded."""
    with tempfile.TemporaryDirectory() as directory, futures.ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers)
        server.add_generic_rpc_handlers((_Nonsense(),))
        server.add_insecure_port(f"unix:{directory}/cri.sock")
        server.start()
        caller = client.GRPCClient(f"unix://{directory}/cri.sock", "RuntimeService")
        for _ in range(1000):
            with pytest.raises(remote.RemoteError, match="code = Internal"):
                caller.invoke(CTX, "Status", runtimeapi.StatusRequest(), 30)
        caller.close()
        server.stop(None).wait()


def test_answers_that_cannot_be_decoded_leave_no_memory() -> None:
    assert memory.peak_growth("kubelet.cri.remote.remote_runtime_test", "get_nonsense") < 12


def _connections(server: fake.FakeServer) -> int:
    """Count the connections of the server, without its listening socket."""
    path = server.endpoint.removeprefix("unix://")
    lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()
    return sum(line.endswith(f" {path}") for line in lines) - 1


def test_version_names_missing_fields(tmp_path: Path) -> None:
    server = _serve(tmp_path / "x.sock", ("runtime.v1.RuntimeService",))
    service = remote.RemoteRuntimeService(CTX, f"unix://{tmp_path}/x.sock", 30)
    with pytest.raises(ValueError, match="missing Version, RuntimeName, RuntimeApiVersion, RuntimeVersion"):
        service.version(CTX, "0.1.0")
    service.close(CTX)
    server.stop(None).wait()


def test_cancelling_the_context_ends_a_call_that_hangs(
    server: fake.FakeServer, service: remote.RemoteRuntimeService
) -> None:
    fault = server.runtime.faults.hang("Status")
    ctx, cancel = golang.with_cancel(CTX)
    failures: list[BaseException] = []

    def call() -> None:
        try:
            service.status(ctx, False)
        except golang.Canceled as err:
            failures.append(err)

    thread = golang.go(call, name="caller")
    wait_until_equal("calls that hang", lambda: fault.waiting, 1)
    cancel()
    thread.join(30)
    assert isinstance(failures[0], remote.RemoteError)
    assert failures[0].code is grpc.StatusCode.CANCELLED
    wait_for("no call hangs any more", lambda: fault.waiting == 0)  # The runtime noticed the cancellation too.


def test_call_of_a_cancelled_context_is_never_made(
    server: fake.FakeServer, service: remote.RemoteRuntimeService
) -> None:
    """A cancelled context prevents the call, because the runtime could act before it learns of the cancellation."""
    ctx, cancel = golang.with_cancel(CTX)
    cancel()
    made = server.runtime.recorder.counts.get("StopPodSandbox", 0)
    for _ in range(20):
        with pytest.raises(golang.Canceled):
            service.stop_pod_sandbox(ctx, "sandbox")
    service.stop_pod_sandbox(CTX, "sandbox")
    assert server.runtime.recorder.counts["StopPodSandbox"] == made + 1


def test_deadlines(server: fake.FakeServer) -> None:
    service = remote.RemoteRuntimeService(CTX, server.endpoint, 0.2)
    server.runtime.faults.hang("Version")
    with pytest.raises(remote.RemoteError, match="code = DeadlineExceeded"):
        service.version(CTX, "")
    service.close(CTX)


def test_deadline_of_the_context_counts(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    server.runtime.faults.hang("Version")
    ctx, cancel = golang.with_timeout(CTX, 0.2)
    with pytest.raises(remote.RemoteError, match="code = DeadlineExceeded"):
        service.version(ctx, "")
    cancel()


def test_deadline_that_ends_the_call_before_grpc_does() -> None:
    class Cancelled(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.CANCELLED

    ctx, cancel = golang.with_timeout(CTX, 0.0)
    err = client.GRPCClient("unix:///x.sock", "RuntimeService")._translate(ctx, Cancelled())
    assert str(err) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    cancel()


class _Limits:
    """Record the last request and time limit of each method."""

    def __init__(self) -> None:
        self.limits: dict[str, float | None] = {}
        self.requests: dict[str, Any] = {}

    def invoke(self, ctx: golang.Context, method: str, request: Any, timeout: float | None) -> Any:
        self.limits[method] = timeout
        self.requests[method] = request
        return (
            runtimeapi.RunPodSandboxResponse(pod_sandbox_id="s")
            if method == "RunPodSandbox"
            else (runtimeapi.ExecSyncResponse())
        )

    def stream(self, ctx: golang.Context, method: str, request: Any) -> AbstractContextManager[Iterator[Any]]:
        return nullcontext(iter(()))

    def close(self) -> None:
        pass


def test_grace_period_that_is_too_long_for_grpc_is_not_over_at_once() -> None:
    assert client._shorter(120.0 + 2**63, None) == golang.MAX_REMAINING
    assert client._shorter(2.0, 1.0) == 1.0 and client._shorter(None, None) is None


@pytest.mark.parametrize(("given", "told"), [(30, 30), (2**63 - 1, 9_223_372_036)])
def test_grace_period_that_is_too_long_for_the_runtime(given: int, told: int) -> None:
    service = remote.RemoteRuntimeService(CTX, "/x.sock", 120)
    limits = _Limits()
    service._client = limits
    service.stop_container(CTX, "c", given)
    assert limits.requests["StopContainer"].timeout == told


def test_limits_per_method() -> None:
    service = remote.RemoteRuntimeService(CTX, "/x.sock", 120)
    limits = _Limits()
    service._client = limits
    service.run_pod_sandbox(CTX, sandbox_config(), "")
    service.stop_container(CTX, "c", 30)
    service.exec_sync(CTX, "c", ["true"], 5)
    service.remove_container(CTX, "c")
    service.checkpoint_container(CTX, runtimeapi.CheckpointContainerRequest(timeout=500))
    assert limits.limits == {
        "RunPodSandbox": 240,
        "StopContainer": 150,
        "ExecSync": 125,
        "RemoveContainer": 120,
        "CheckpointContainer": 500,
    }
    service.exec_sync(CTX, "c", ["true"], 0)
    assert limits.limits["ExecSync"] is None


def test_runtime_that_comes_back_is_found(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    service.version(CTX, "")
    server.stop()
    with pytest.raises(remote.RemoteError, match="code = Unavailable"):
        service.version(CTX, "")
    CTX.wait(1.5)  # This is long enough for the backoff to reach its maximum.
    server.start()

    def answers() -> bool:
        try:
            return bool(service.version(CTX, "").version)
        except remote.RemoteError:
            return False

    wait_for("the runtime answers", answers)


def test_attempts_to_connect_are_at_most_a_second_apart(
    service: remote.RemoteRuntimeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    insecure_channel = grpc.insecure_channel

    def note(target: str, options: list[tuple[str, Any]]) -> Any:
        given.update(options)
        return insecure_channel(target, options=options)

    monkeypatch.setattr(grpc, "insecure_channel", note)
    service.version(CTX, "")
    assert given["grpc.max_reconnect_backoff_ms"] == 1000


def test_exec_sync_carries_code_and_output(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    server.runtime.behaviours.add(fake.Behaviour(exec_exit_code=2, exec_stdout="out", exec_stderr="err"))
    _, container_id = run_container(service)
    with pytest.raises(utilexec.CodeExitError, match="command 'a b' exited with 2: err") as raised:
        service.exec_sync(CTX, container_id, ["a", "b"], 1)
    assert (raised.value.code, raised.value.output) == (2, b"outerr")


def test_nothing_stays_of_a_call_that_fails(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    assert "exec_sync" not in frames_kept_after(lambda: service.exec_sync(CTX, "none", ["a"], 1))
    server.runtime.faults.hang("ExecSync")
    ctx, cancel = golang.with_timeout(CTX, 0.2)
    assert "exec_sync" not in frames_kept_after(lambda: service.exec_sync(ctx, "none", ["a"], 1))
    cancel()


def test_nothing_stays_of_a_stream_that_is_left(service: remote.RemoteRuntimeService) -> None:
    def leave() -> None:
        with service._client.stream(CTX, "GetContainerEvents", runtimeapi.GetEventsRequest()):
            pass

    assert "_started" not in frames_kept_after(leave)


def test_exec_sync_shows_the_beginning_of_endless_complaints(
    server: fake.FakeServer, service: remote.RemoteRuntimeService
) -> None:
    stderr = "x" * 8 * 1024 * 1024
    server.runtime.behaviours.add(fake.Behaviour(exec_exit_code=2, exec_stdout="out", exec_stderr=stderr))
    _, container_id = run_container(service)
    with pytest.raises(utilexec.CodeExitError) as raised:
        service.exec_sync(CTX, container_id, ["a", "b"], 1)
    assert str(raised.value) == f"command 'a b' exited with 2: {stderr[: 10 * 1024]}"
    assert raised.value.output == b"out" + stderr.encode()


def test_exec_sync_shows_the_beginning_of_a_long_command(
    server: fake.FakeServer, service: remote.RemoteRuntimeService
) -> None:
    server.runtime.behaviours.add(fake.Behaviour(exec_exit_code=2))
    _, container_id = run_container(service)
    with pytest.raises(utilexec.CodeExitError) as raised:
        service.exec_sync(CTX, container_id, ["a", "b" * 1_000_000], 1)
    assert str(raised.value).startswith("command 'a bbb")
    assert len(str(raised.value)) < 11_000


def test_beginning_of_a_long_command_is_logged(service: remote.RemoteRuntimeService, log: io.StringIO) -> None:
    command = ["a", "\x01" * 1_000_000]
    request = runtimeapi.ExecRequest(container_id="none", cmd=command, stdout=True)
    with pytest.raises(errors.RemoteError):
        service.exec_sync(CTX, "none", command, 1)
    with pytest.raises(errors.RemoteError):
        service.exec(CTX, request)
    assert log.getvalue().count('cmd=["a","\\u0001') == 2
    assert len(log.getvalue()) < 130_000


def test_exec_sync_timeout(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    server.runtime.behaviours.add(fake.Behaviour(exec_for=60))
    _, container_id = run_container(service)
    with pytest.raises(utilexec.CommandTimedOutError, match='"sleep 60" timed out after 1s'):
        service.exec_sync(CTX, container_id, ["sleep", "60"], 1)


def test_list_larger_than_grpc_allows_by_default(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    config = sandbox_config()
    config.annotations["big"] = "x" * (2 * 1024 * 1024)
    for attempt in range(3):
        config.metadata.attempt = attempt
        service.run_pod_sandbox(CTX, config, "")
    assert len(service.list_pod_sandbox(CTX, None)) == 3


def test_lists_are_not_streamed(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    with set_feature_gate_during_test(features.feature_gate, features.CRI_LIST_STREAMING, True):
        assert not service.list_containers(CTX, None)
    assert server.runtime.recorder.counts == {"ListContainers": 1}


def test_status_of_another_container_or_sandbox_is_refused(
    server: fake.FakeServer, service: remote.RemoteRuntimeService
) -> None:
    def rename(answer: Any) -> Any:
        answer.status.id = "other"
        return answer

    sandbox_id, container_id = run_container(service)
    server.runtime.faults.lie("ContainerStatus", rename)
    server.runtime.faults.lie("PodSandboxStatus", rename)
    with pytest.raises(errors.InvalidResponseError, match="is 'other', but the request was for"):
        service.container_status(CTX, container_id, False)
    with pytest.raises(errors.InvalidResponseError, match="is 'other', but the request was for"):
        service.pod_sandbox_status(CTX, sandbox_id, False)


def test_repeated_failures_are_logged_once(
    server: fake.FakeServer, service: remote.RemoteRuntimeService, capsys: pytest.CaptureFixture[str]
) -> None:
    server.runtime.faults.fail("ListPodSandbox", "down")
    for _ in range(3):
        with pytest.raises(remote.RemoteError, match="code = Unknown desc = down"):
            service.list_pod_sandbox(CTX, None)
    assert capsys.readouterr().err.count("ListPodSandbox with filter from runtime service failed") == 1


def test_error_with_a_long_text_keeps_its_code(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    text = "the network plugin says: " + "x" * (1 << 20)
    server.runtime.faults.fail("RunPodSandbox", text, code=grpc.StatusCode.NOT_FOUND)
    with pytest.raises(remote.RemoteError) as raised:
        service.run_pod_sandbox(CTX, sandbox_config(), "")
    assert raised.value.code is grpc.StatusCode.NOT_FOUND
    assert raised.value.message == text[: 64 << 10], "enough to tell; each failure is logged several times"


def test_container_events(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    events: golang.Channel[runtimeapi.ContainerEventResponse] = golang.Channel(100)
    ctx, cancel = golang.with_cancel(CTX)
    connected: list[object] = []

    def listen() -> None:
        with pytest.raises(golang.Canceled):
            service.get_container_events(ctx, events, connected.append)

    thread = golang.go(listen, name="listener")
    # The runtime may count the subscriber before the listener's callback runs.
    wait_for("the stream of events is connected", lambda: server.runtime.subscribers == 1 and bool(connected))
    _, container_id = run_container(service, "sh", "-c", "exit 3")
    kinds = []
    while runtimeapi.CONTAINER_STOPPED_EVENT not in kinds:
        event, ok = events.recv(30)
        assert ok and event is not None
        if event.container_id == container_id:
            kinds.append(event.container_event_type)
    assert kinds == [
        runtimeapi.CONTAINER_CREATED_EVENT,
        runtimeapi.CONTAINER_STARTED_EVENT,
        runtimeapi.CONTAINER_STOPPED_EVENT,
    ]
    cancel()
    thread.join(30)
    wait_for("the stream of events has ended", lambda: server.runtime.subscribers == 0)


def test_container_events_not_implemented(server: fake.FakeServer, service: remote.RemoteRuntimeService) -> None:
    server.runtime.events_enabled = False
    with pytest.raises(remote.RemoteError) as raised:
        service.get_container_events(CTX, golang.Channel(), None)
    assert raised.value.code is grpc.StatusCode.UNIMPLEMENTED


def test_images(server: fake.FakeServer) -> None:
    service = remote.RemoteImageService(CTX, server.endpoint, 30)
    service.validate_service_connection(CTX)
    spec = runtimeapi.ImageSpec(image="nginx:1")
    assert not service.image_status(CTX, spec, False).HasField("image")
    ref = service.pull_image(CTX, spec, None, None)
    assert service.image_status(CTX, spec, False).image.id == ref
    assert len(service.list_images(CTX, None)) == 2
    service.remove_image(CTX, spec)
    assert not service.image_status(CTX, spec, False).HasField("image")
    server.runtime.faults.fail("PullImage", "RegistryUnavailable: no route")
    with pytest.raises(remote.RemoteError, match=r"^RegistryUnavailable: no route$"):
        service.pull_image(CTX, spec, None, None)
    server.runtime.images.pull_errors["nope:1"] = fake.not_found("nope:1")
    server.runtime.faults.clear()
    with pytest.raises(remote.RemoteError, match=r"^rpc error: code = NotFound desc = failed to pull"):
        service.pull_image(CTX, runtimeapi.ImageSpec(image="nope:1"), None, None)
    service.close(CTX)


def test_secrets_are_not_logged_at_any_verbosity(service: remote.RemoteRuntimeService, log: io.StringIO) -> None:
    config = container_config()
    config.envs.append(runtimeapi.KeyValue(key="TOKEN", value="geheim"))
    klog.set_verbosity(10)
    try:
        sandbox_id = service.run_pod_sandbox(CTX, sandbox_config(), "")
        service.create_container(CTX, sandbox_id, config, sandbox_config())
    finally:
        klog.set_verbosity(0)
    assert "[RemoteRuntimeService] CreateContainer" in log.getvalue() and "geheim" not in log.getvalue()
