"""Tests of gRPC probes against real servers on loopback."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework import memory

from pkg import golang
from pkg.component_base import version
from pkg.probe import Result, probe_grpc

CTX = golang.background()
HOST = "127.0.0.1"
TIMEOUT = 30.0
Answer = Callable[[bytes, Any], bytes]


class Handler(grpc.GenericRpcHandler):
    """A server of one method."""

    def __init__(self, method: str, answer: Answer) -> None:
        self._method = method
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != self._method:
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)


@contextmanager
def serving(answer: Answer, method: str = "/grpc.health.v1.Health/Check", address: str = HOST) -> Iterator[int]:
    """A health server whose checks are answered by `answer`, in the wire's bytes; gives its port."""
    with futures.ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers)
        server.add_generic_rpc_handlers((Handler(method, answer),))
        port = server.add_insecure_port(f"{address}:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


def status(number: int) -> Answer:
    return lambda request, context: bytes([8, number])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (status(1), (Result.SUCCESS, "service healthy")),
        (status(2), (Result.FAILURE, 'service unhealthy (responded with "NOT_SERVING")')),
        (status(3), (Result.FAILURE, 'service unhealthy (responded with "SERVICE_UNKNOWN")')),
        (lambda request, context: b"", (Result.FAILURE, 'service unhealthy (responded with "UNKNOWN")')),
        (status(77), (Result.FAILURE, 'service unhealthy (responded with "77")')),
    ],
)
def test_serving_status(answer: Answer, expected: tuple[Result, str]) -> None:
    with serving(answer) as port:
        assert probe_grpc(CTX, HOST, "", port, TIMEOUT) == expected


def test_what_is_asked() -> None:
    seen: list[tuple[bytes, str]] = []

    def note(request: bytes, context: grpc.ServicerContext) -> bytes:
        agent = dict(context.invocation_metadata())["user-agent"]
        seen.append((request, str(agent)))
        return b"\x08\x01"

    with serving(note) as port:
        for service in ("", "readiness"):
            probe_grpc(CTX, HOST, service, port, TIMEOUT)
    assert [request for request, _ in seen] == [b"", b"\x0a\x09readiness"]
    info = version.get()
    assert all(agent.startswith(f"kube-probe/{info.major}.{info.minor} grpc-") for _, agent in seen)


def test_time_out_of_68_years() -> None:
    with serving(status(1)) as port:
        assert probe_grpc(CTX, HOST, "", port, 2.0**31 - 1) == (Result.SUCCESS, "service healthy")


def test_ipv6() -> None:
    with serving(status(1), address="[::1]") as port:
        assert probe_grpc(CTX, "::1", "", port, TIMEOUT)[0] is Result.SUCCESS


def test_server_without_the_health_protocol() -> None:
    with serving(status(1), method="/other.Service/Check") as port:
        result, output = probe_grpc(CTX, HOST, "", port, TIMEOUT)
    assert result is Result.FAILURE
    start = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): "
    assert output.removeprefix(start) == "Method not found!"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (grpc.StatusCode.NOT_FOUND, "NotFound"),
        (grpc.StatusCode.CANCELLED, "Canceled"),
        (grpc.StatusCode.INTERNAL, "Internal"),
    ],
)
def test_server_that_answers_with_an_error(code: grpc.StatusCode, name: str) -> None:
    def refuse(request: bytes, context: grpc.ServicerContext) -> bytes:
        context.abort(code, "unknown service")

    with serving(refuse) as port:
        found = probe_grpc(CTX, HOST, "x", port, TIMEOUT)
    expected = f"error: health rpc probe failed: rpc error: code = {name} desc = unknown service"
    assert found == (Result.FAILURE, expected)


def test_server_that_does_not_answer_in_time() -> None:
    done = threading.Event()

    def hang(request: bytes, context: grpc.ServicerContext) -> bytes:
        done.wait(TIMEOUT)
        return b"\x08\x01"

    with serving(hang) as port:
        found = probe_grpc(CTX, HOST, "", port, 2)
        done.set()
    assert found == (Result.FAILURE, "timeout: health rpc did not complete within 2s")


def test_probe_that_is_cancelled_ends() -> None:
    ctx, cancel = golang.with_cancel(CTX)
    done = threading.Event()

    def hang(request: bytes, context: grpc.ServicerContext) -> bytes:
        cancel()
        done.wait(TIMEOUT)
        return b"\x08\x01"

    with serving(hang) as port:
        with pytest.raises(golang.Canceled):
            probe_grpc(ctx, HOST, "", port, 2.0**31 - 1)
        done.set()


def test_probe_of_a_server_that_is_not_there_ends_when_it_is_cancelled() -> None:
    ctx, cancel = golang.with_cancel(CTX)
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        thread = golang.go(cancel, name="cancel")
        with pytest.raises(golang.Canceled):
            probe_grpc(ctx, HOST, "", unused.getsockname()[1], TIMEOUT)
        thread.join()


def test_server_that_answers_nothing() -> None:
    with serving_nothing() as port:
        result, output = probe_grpc(CTX, HOST, "", port, TIMEOUT)
    assert result is Result.FAILURE
    assert "code = Internal desc = cardinality violation" in output


@contextmanager
def serving_nothing() -> Iterator[int]:
    """A health server that says of each check that all is well, and no more."""

    class Silent(grpc.GenericRpcHandler):
        def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter(()))

    with futures.ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers, handlers=[Silent()])
        port = server.add_insecure_port(f"{HOST}:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait()


@contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that says something else than gRPC to whoever connects."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def talk_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_server_that_speaks_something_else() -> None:
    with listening(talk_http) as port:
        found = probe_grpc(CTX, HOST, "", port, 0.5)
    reason = f'timeout: failed to connect service "{HOST}:{port}" within 500ms: context deadline exceeded'
    assert found == (Result.FAILURE, reason)


@pytest.mark.parametrize("host", [HOST, "", "no-such-host.invalid"])
def test_no_server(host: str) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        found = probe_grpc(CTX, host, "", port, 0.5)
    reason = f'timeout: failed to connect service "{host}:{port}" within 500ms: context deadline exceeded'
    assert found == (Result.FAILURE, reason)


def test_server_that_comes_up_meanwhile() -> None:
    found: list[tuple[Result, str]] = []
    with socket.socket() as reserved, futures.ThreadPoolExecutor(1) as workers:
        # Nobody but the server, which shares it, can take the port; nobody answers there until it does.
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((HOST, 0))
        port = reserved.getsockname()[1]
        probing = threading.Thread(target=lambda: found.append(probe_grpc(CTX, HOST, "", port, TIMEOUT)))
        probing.start()
        server = grpc.server(workers)
        server.add_generic_rpc_handlers((Handler("/grpc.health.v1.Health/Check", status(1)),))
        server.add_insecure_port(f"{HOST}:{port}")
        server.start()
        probing.join()
        server.stop(None).wait()
    assert found == [(Result.SUCCESS, "service healthy")]


def test_server_that_says_nothing_gets_rid_of_the_connection_soon() -> None:
    ended = threading.Event()

    def read_all(connection: socket.socket) -> None:
        connection.settimeout(TIMEOUT)
        while connection.recv(1000):
            pass
        ended.set()

    with listening(read_all) as port:
        assert probe_grpc(CTX, HOST, "", port, 0.3)[0] is Result.FAILURE
        assert ended.wait(TIMEOUT)


def fail_many_times() -> None:
    """300 probes of a server that takes too long, and 700 of one whose answers cannot be decoded."""

    def hang(request: bytes, context: grpc.ServicerContext) -> bytes:
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait(TIMEOUT)
        return b""

    with serving(hang) as port:
        for _ in range(300):
            assert probe_grpc(CTX, HOST, "", port, 0.05)[0] is Result.FAILURE
    with serving(lambda request, context: b"\xff") as port:
        for _ in range(700):
            assert "code = Internal" in probe_grpc(CTX, HOST, "", port, TIMEOUT)[1]


def test_probes_that_fail_leave_no_memory() -> None:
    assert memory.peak_growth("pkg.probe.grpc_test", "fail_many_times") < 24


def test_no_connection_and_no_thread_is_left() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def connections(port: int) -> int:
        wanted = f":{port:04X} "
        lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        # 01 is an established one.
        return sum(wanted in line and line.split()[3] == "01" for line in lines)

    with serving(status(1)) as port:
        probe_grpc(CTX, HOST, "", port, TIMEOUT)
        before = threads()
        for _ in range(50):
            probe_grpc(CTX, HOST, "", port, TIMEOUT)
        # gRPC has some threads of its own, which come and go, but none for a channel.
        assert threads() < before + 10
        settled, deadline = threading.Event(), 600
        while connections(port) and deadline:
            settled.wait(0.05)
            deadline -= 1
        assert connections(port) == 0
