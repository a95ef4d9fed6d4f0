"""Test gRPC probes against real servers on loopback."""

from __future__ import annotations

import contextlib
import gzip
import os
import random
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import hpack
import pytest
from framework import memory
from framework.waiting import wait_until_equal

from pkg import golang
from pkg.apimachinery.util import wait
from pkg.component_base import version
from pkg.golang.testing import OnlyTurn
from pkg.probe import Result, grpcclient, probe_grpc
from pkg.probe.testing import HOST, listening

CTX = golang.background()
TIMEOUT = 30.0
Answer = Callable[[bytes, Any], bytes]


class Handler(grpc.GenericRpcHandler):
    """Serve one method."""

    def __init__(self, method: str, answer: Answer) -> None:
        self._method = method
        self._answer = answer

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        if handler_call_details.method != self._method:
            return None
        return grpc.unary_unary_rpc_method_handler(self._answer)


@contextmanager
def serving(answer: Answer, method: str = "/grpc.health.v1.Health/Check", address: str = HOST) -> Iterator[int]:
    """Run a health server that responds to checks with the bytes from `answer`; yield its port."""
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
    """Run a health server that ends each check with status OK but without a message."""

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


def talk_http(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_server_that_speaks_something_else() -> None:
    with listening(talk_http) as port:
        found = probe_grpc(CTX, HOST, "", port, 0.5)
    reason = f'timeout: failed to connect service "{HOST}:{port}" within 500ms: context deadline exceeded'
    assert found == (Result.FAILURE, reason)


def frame(kind: int, flags: int, body: bytes, stream: int = 1) -> bytes:
    return len(body).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + body


def headers(flags: int = 0, **fields: str) -> bytes:
    """Return a frame of headers; flag 1 is END_STREAM. An underscore in a name stands for a hyphen."""
    named = [(name.replace("_", "-").replace("pseudo-", ":"), value) for name, value in fields.items()]
    return frame(1, 4 | flags, hpack.Encoder().encode(named))


def goaway(last_stream: int, code: int) -> bytes:
    return frame(7, 0, last_stream.to_bytes(4) + code.to_bytes(4), stream=0)


SETTINGS = frame(4, 0, b"", stream=0)
BEGIN = headers(pseudo_status="200", content_type="application/grpc")
SERVING = frame(0, 0, b"\0\0\0\0\2\x08\1")
COMPRESSED = headers(pseudo_status="200", content_type="application/grpc", grpc_encoding="gzip")
END = headers(1, grpc_status="0")
HEALTHY = (Result.SUCCESS, "service healthy")


def compressed(message: bytes) -> bytes:
    """Return a frame with a message that is marked as compressed."""
    return frame(0, 0, b"\1" + len(message).to_bytes(4) + message)


def answering(answer: bytes, repeated: bytes = b"", settings: bytes = SETTINGS) -> AbstractContextManager[int]:
    """Run a server that responds to a call with the bytes in `answer`, and then sends `repeated` forever."""

    def talk(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.sendall(settings)
            received = b""
            while not received.endswith(QUESTION) and (data := connection.recv(1000)):
                received += data
            connection.sendall(answer)
            while repeated:
                connection.sendall(repeated)
            while connection.recv(1000):
                pass

    return listening(talk)


# This is the last frame of a call: an empty message.
QUESTION = frame(0, 1, bytes(5))


@pytest.mark.parametrize(
    "answer",
    [
        BEGIN + SERVING + END,
        # GOAWAY names the last stream that the server still serves, which is the probe's.
        goaway(1, 0) + BEGIN + SERVING + END,
        BEGIN + SERVING + END + goaway(0, 0) + frame(6, 0, bytes(8), stream=0),
        headers(pseudo_status="103") + BEGIN + frame(2, 0, bytes(5)) + SERVING + frame(99, 0, b"x") + END,
        headers(pseudo_status="200", content_type="application/grpc+proto") + SERVING + END,
        BEGIN + frame(0, 8, b"\3\0\0\0\0\2\x08\1\0\0\0") + END,
        # Some servers compress all messages.
        COMPRESSED + compressed(gzip.compress(b"\x08\1", mtime=0)) + END,
        COMPRESSED + SERVING + END,
        # HTTP/2 forbids such fields, but they do no harm.
        headers(pseudo_status="200", content_type="application/grpc", connection="close") + SERVING + END,
        BEGIN + SERVING + headers(1, grpc_status="0", server=" blank "),
    ],
)
def test_answers_of_a_server_that_is_well(answer: bytes) -> None:
    with answering(answer) as port:
        assert probe_grpc(CTX, HOST, "", port, TIMEOUT) == HEALTHY


@pytest.mark.parametrize(
    ("answer", "code", "reason"),
    [
        (goaway(0, 0), "Unavailable", "closing transport due to: received prior goaway: code: NO_ERROR"),
        (goaway(0, 14), "Unavailable", "closing transport due to: received prior goaway: code: unknown error code 14"),
        (frame(7, 0, b"", stream=0), "Unavailable", "closing transport due to: received prior goaway: code: NO_ERROR"),
        (frame(3, 0, b"\0\0\0\7"), "Unavailable", "stream terminated by RST_STREAM with error code: REFUSED_STREAM"),
        (frame(3, 0, b"\0\0\0\1"), "Internal", "stream terminated by RST_STREAM with error code: PROTOCOL_ERROR"),
        (frame(3, 0, b"\0\0\0c"), "Unknown", "stream terminated by RST_STREAM with error code: unknown error code 99"),
        (
            headers(1, pseudo_status="503"),
            "Unavailable",
            "unexpected HTTP status code received from server: 503 (Service Unavailable); "
            "malformed header: missing HTTP content-type",
        ),
        (
            headers(1, pseudo_status="200", content_type="text/html"),
            "Unknown",
            'transport: received unexpected content-type "text/html"',
        ),
        (
            headers(1, pseudo_status="200", content_type="application/grpc", grpc_status="5", grpc_message="n%C3%B6"),
            "NotFound",
            "nö",
        ),
        (
            headers(1, pseudo_status="200", content_type="application/grpc", grpc_status="five"),
            "Internal",
            'malformed grpc-status: "five"',
        ),
        (headers(1, pseudo_status="200", content_type="application/grpc", grpc_status="99"), "Unknown", ""),
        (BEGIN + frame(0, 1, b""), "Internal", "server closed the stream without sending trailers"),
        (BEGIN + frame(0, 0, b"\0\0") + END, "Internal", "unexpected EOF"),
        (BEGIN + frame(0, 0, b"\0\0\0\0\3\x08\1") + END, "Internal", "unexpected EOF"),
        (BEGIN + compressed(b"\x08\1") + END, "Internal", "grpc: compressed flag set with identity or empty encoding"),
        (
            headers(pseudo_status="200", content_type="application/grpc", grpc_encoding="br") + compressed(b"x") + END,
            "Internal",
            'grpc: Decompressor is not installed for grpc-encoding "br"',
        ),
        (
            COMPRESSED + compressed(b"\x08\1") + END,
            "Internal",
            "grpc: failed to decompress the received message: Not a gzipped file (b'\\x08\\x01')",
        ),
        (
            COMPRESSED + compressed(gzip.compress(b"\x08\1", mtime=0)[:-1]) + END,
            "Internal",
            "grpc: failed to decompress the received message: "
            "Compressed file ended before the end-of-stream marker was reached",
        ),
        (
            COMPRESSED + compressed(gzip.compress(bytes(10_000_000), mtime=0)) + END,
            "ResourceExhausted",
            "grpc: received message after decompression larger than max 65536",
        ),
        (BEGIN + frame(0, 0, b"\2\0\0\0\2\x08\1") + END, "Internal", "grpc: received unexpected payload format 2"),
        (
            BEGIN + SERVING + SERVING + END,
            "Internal",
            "cardinality violation: expected <EOF> for non server-streaming RPCs, but received another message",
        ),
        (
            frame(1, 4, b"\x08\x01x" * 5000),
            "Internal",
            "http2: Oversized header block: A header list larger than 65536 has been received",
        ),
        (SERVING, "Internal", "http2: cannot receive data before headers"),
        (frame(0, 0, bytes(65536)), "ResourceExhausted", "received more than 65536 bytes"),
    ],
)
def test_answers_that_are_none(answer: bytes, code: str, reason: str) -> None:
    with answering(answer) as port:
        found = probe_grpc(CTX, HOST, "", port, TIMEOUT)
    assert found == (Result.FAILURE, f"error: health rpc probe failed: rpc error: code = {code} desc = {reason}")


def test_server_that_speaks_of_push() -> None:
    with answering(BEGIN + SERVING + END, settings=frame(4, 0, b"\0\2\0\0\0\1", stream=0)) as port:
        assert probe_grpc(CTX, HOST, "", port, TIMEOUT) == HEALTHY


def test_server_that_compresses_long_messages() -> None:
    with futures.ThreadPoolExecutor(2) as workers:
        handler = Handler("/grpc.health.v1.Health/Check", lambda request, context: b"\x08\1" + b"\x12\x40" + bytes(64))
        server = grpc.server(workers, handlers=[handler], compression=grpc.Compression.Gzip)
        port = server.add_insecure_port(f"{HOST}:0")
        server.start()
        try:
            assert probe_grpc(CTX, HOST, "", port, TIMEOUT) == HEALTHY
        finally:
            server.stop(None).wait()


def flood() -> None:
    """Probe servers that endlessly send frames that gRPC's library would store or would have to respond to."""
    priority, ping = frame(2, 0, bytes(5)), frame(6, 0, bytes(8), stream=0)
    for repeated in (priority * 1000, ping * 1000, SETTINGS * 1000, headers(pseudo_status="103") * 1000):
        with answering(b"", repeated) as port:
            output = probe_grpc(CTX, HOST, "", port, TIMEOUT)[1]
        assert output.endswith("code = ResourceExhausted desc = received more than 65536 bytes"), output


def test_server_that_sends_without_an_end() -> None:
    assert memory.peak_growth("pkg.probe.grpc_test", "flood") < 24


def test_message_that_a_server_takes_in_parts() -> None:
    """The probe sends a message that exceeds a frame and the server's initial window, such as a long service name."""
    received = bytearray()

    def talk(connection: socket.socket) -> None:
        connection.sendall(SETTINGS)
        more = [frame(8, 0, (100_000).to_bytes(4), stream) for stream in (0, 1)]
        while data := connection.recv(100_000):
            received.extend(data)
            if more and len(received) > 65_535:
                # The server has received as much as its initial window allows.
                connection.sendall(b"".join(more))
                more = []
            if received.endswith(b"the end"):
                connection.sendall(BEGIN + SERVING + END)

    with listening(talk) as port:
        assert probe_grpc(CTX, HOST, "s" * 100_000 + "the end", port, TIMEOUT) == HEALTHY
    assert len(received) > 100_000


def test_whatever_a_server_sends_is_an_answer() -> None:
    """The probe copes with frames that are omitted, repeated, reordered or modified."""
    rng = random.Random(1)
    for _ in range(100):
        frames = [SETTINGS, headers(pseudo_status="103"), BEGIN, SERVING, END, goaway(1, 0), frame(6, 0, bytes(8), 0)]
        frames = rng.choices(frames, k=rng.randrange(8)) if rng.random() < 0.5 else frames
        answer = bytearray(b"".join(frames))
        for _ in range(rng.randrange(4)):
            if answer:
                answer[rng.randrange(len(answer))] = rng.randrange(256)
        with answering(bytes(answer)) as port:
            assert probe_grpc(CTX, HOST, "", port, 0.1)[0] in Result


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0n"), (0.05, "50000000n"), (0.5, "500000u"), (1, "1000000u"), (2.0**31, "35791395M"), (1e12, "99999999H")],
)
def test_time_limit_of_a_call(seconds: float, text: str) -> None:
    assert grpcclient.encode_timeout(seconds) == text


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
        # Only the server, which shares the port, can bind it. Until then no process listens there.
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
    """Run 100 probes of a server that takes too long, and 300 of one whose responses cannot be decoded."""

    def hang(request: bytes, context: grpc.ServicerContext) -> bytes:
        ended = threading.Event()
        if context.add_callback(ended.set):
            ended.wait(TIMEOUT)
        return b""

    with serving(hang) as port:
        for _ in range(100):
            assert probe_grpc(CTX, HOST, "", port, 0.05)[0] is Result.FAILURE
    with serving(lambda request, context: b"\xff") as port:
        for _ in range(300):
            assert "code = Internal" in probe_grpc(CTX, HOST, "", port, TIMEOUT)[1]


def test_probes_that_fail_leave_no_memory() -> None:
    assert memory.peak_growth("pkg.probe.grpc_test", "fail_many_times") < 24


def test_no_connection_and_no_thread_is_left() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    def connections(port: int) -> int:
        wanted = f":{port:04X} "
        lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        # State 01 is an established connection.
        return sum(wanted in line and line.split()[3] == "01" for line in lines)

    with serving(status(1)) as port:
        probe_grpc(CTX, HOST, "", port, TIMEOUT)
        before = threads()
        for _ in range(50):
            probe_grpc(CTX, HOST, "", port, TIMEOUT)
        # The test's own server has some threads that come and go.
        assert threads() < before + 10
        wait_until_equal("connections", lambda: connections(port), 0)


def test_pause_before_connecting_again_lets_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    only, free = OnlyTurn(), list[bool]()
    ctx, cancel = golang.with_cancel(only.ctx)

    def step(backoff: wait.Backoff) -> float:
        free.append(only.is_free())
        cancel()
        return TIMEOUT

    monkeypatch.setattr(wait.Backoff, "step", step)
    with socket.socket() as unused, only.turn, pytest.raises(golang.Canceled):
        unused.bind((HOST, 0))
        probe_grpc(ctx, HOST, "", unused.getsockname()[1], TIMEOUT)
    assert free == [True]
