"""Test the state of connections and calls without extra threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest

from pkg import golang
from pkg.golang.testing import frames_kept_after
from pkg.util import grpcconn, grpcstatus

_DEADLINE = 30.0


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{tmp_path}/s.sock") as conn:
        yield conn


@pytest.fixture
def server(tmp_path: Path) -> Iterator[grpc.Server]:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{tmp_path}/s.sock")
    server.start()
    yield server
    server.stop(None).wait(_DEADLINE)


@pytest.mark.usefixtures("server")
def test_server_that_is_there(conn: grpc.Channel) -> None:
    assert not grpcconn.is_ready(conn)
    assert grpcconn.wait_until_ready(conn, _DEADLINE)
    assert grpcconn.is_ready(conn)


@pytest.mark.usefixtures("server")
def test_no_thread_goes_on_watching_what_may_be_closed_at_once(conn: grpc.Channel) -> None:
    before = set(threading.enumerate())
    assert grpcconn.wait_until_ready(conn, _DEADLINE)
    assert set(threading.enumerate()) <= before


def test_server_that_is_not_there(conn: grpc.Channel) -> None:
    before = set(threading.enumerate())
    assert not grpcconn.wait_until_ready(conn, 0.1)
    assert set(threading.enumerate()) <= before


def test_connection_that_is_closed(conn: grpc.Channel) -> None:
    conn.close()
    with pytest.raises(ValueError, match="Channel closed"):
        grpcconn.wait_until_ready(conn, _DEADLINE)
    with pytest.raises(ValueError, match="Channel closed"):
        grpcconn.is_ready(conn)
    grpcconn.watch(conn, lambda connected: pytest.fail("nothing can be told of it"))


def test_connection_that_is_watched_until_it_is_closed(conn: grpc.Channel, server: grpc.Server) -> None:
    told: golang.Channel[bool] = golang.Channel(1000)
    thread = golang.go(grpcconn.watch, conn, told.send, name="watch")
    _wait_until_told(told, True)
    server.stop(None).wait(_DEADLINE)
    _wait_until_told(told, False)
    conn.close()
    thread.join(_DEADLINE)
    assert not thread.is_alive()


def _wait_until_told(told: golang.Channel[bool], connected: bool) -> None:
    while (news := told.recv(_DEADLINE)) != (connected, True):
        assert news == (not connected, True)


class _Silent(grpc.GenericRpcHandler):
    """Send no response, and end a call at once or when its client ends it."""

    def __init__(self) -> None:
        self.hangs = True
        self.asked, self.ended = threading.Event(), threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_stream_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.ended.set)
        self.asked.set()
        if self.hangs:
            self.ended.wait(_DEADLINE)
        return iter(())


@pytest.fixture
def silent(server: grpc.Server) -> _Silent:
    silent = _Silent()
    server.add_generic_rpc_handlers((silent,))
    return silent


@pytest.fixture
def method(tmp_path: Path) -> Iterator[grpc.UnaryStreamMultiCallable[bytes, bytes]]:
    with grpc.insecure_channel(f"unix:{tmp_path}/s.sock", [grpcconn.READ_BY_CALLER]) as conn:
        yield conn.unary_stream("/s/Method")


def test_call_that_is_cancelled(silent: _Silent, method: grpc.UnaryStreamMultiCallable[bytes, bytes]) -> None:
    ctx, cancel = golang.with_cancel(golang.background())

    def cancel_once_asked() -> None:
        silent.asked.wait(_DEADLINE)
        cancel()

    thread = golang.go(cancel_once_asked, name="cancel")
    with grpcconn.started(ctx, method, b"") as call, pytest.raises(grpc.RpcError) as raised:
        grpcconn.response(call)
    assert isinstance(raised.value, grpc.Call) and raised.value.code() is grpc.StatusCode.CANCELLED
    thread.join(_DEADLINE)


def test_call_that_is_left_is_ended(silent: _Silent, method: grpc.UnaryStreamMultiCallable[bytes, bytes]) -> None:
    with grpcconn.started(golang.background(), method, b""):
        assert silent.asked.wait(_DEADLINE)
    assert silent.ended.wait(_DEADLINE)


def test_nothing_stays_of_a_call_that_is_left(
    silent: _Silent, method: grpc.UnaryStreamMultiCallable[bytes, bytes]
) -> None:
    def leave() -> None:
        with grpcconn.started(golang.background(), method, b""):
            assert silent.asked.wait(_DEADLINE)

    assert "started" not in frames_kept_after(leave)


def test_nothing_stays_of_a_call_that_an_error_leaves(
    silent: _Silent, method: grpc.UnaryStreamMultiCallable[bytes, bytes]
) -> None:
    """The call is freed although it ends while an error is being raised, as with a response that cannot be decoded."""

    def leave() -> None:
        with grpcconn.started(golang.background(), method, b"") as call:
            assert silent.asked.wait(_DEADLINE) and call.is_active()
            raise ValueError("this is no response")

    assert "leave" not in frames_kept_after(leave)


def test_nothing_stays_of_a_call_that_fails(method: grpc.UnaryStreamMultiCallable[bytes, bytes]) -> None:
    def fail() -> None:
        with grpcconn.started(golang.background(), method, b"") as call:
            try:
                grpcconn.response(call)
            except grpc.RpcError as err:
                raise grpcstatus.from_call(err, "addr") from err

    assert "fail" not in frames_kept_after(fail)


def test_call_without_a_response(silent: _Silent, method: grpc.UnaryStreamMultiCallable[bytes, bytes]) -> None:
    silent.hangs = False
    with (
        grpcconn.started(golang.background(), method, b"") as call,
        pytest.raises(EOFError, match="the server sent no response"),
    ):
        grpcconn.response(call)
