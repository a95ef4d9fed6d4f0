"""Test calls whose request does not arrive."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubelet.apis import grpc as apisgrpc
from kubelet.apis.grpc import requests
from kubelet.apis.grpc.testing import silent_calls

_METHOD = "/test/Echo"
# seconds
_DEADLINE = 30.0


def _calls(channel: grpc.Channel, method: str = _METHOD) -> Any:
    return channel.unary_unary(method)


class _Echo:
    """Serve two requests at once. Echo the request; wait for `may_go_on` if it is b"wait"."""

    def __init__(self, address: str, server: grpc.Server) -> None:
        self.address, self.server = address, server
        self.waits, self.may_go_on = threading.Event(), threading.Event()
        self.changed = threading.Condition()  # The condition guards the fields below.
        self.come = self.running = self.most = 0

    def receive(self, data: bytes) -> bytes:
        with self.changed:
            self.come += 1
            self.changed.notify_all()
        return data

    def serve(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self.changed:
            self.running += 1
            self.most = max(self.most, self.running)
        if request == b"wait":
            self.waits.set()
            self.may_go_on.wait(_DEADLINE)
        with self.changed:
            self.running -= 1
        return request


@pytest.fixture
def echo(tmp_path: Path) -> Iterator[_Echo]:
    pool, timeouts = apisgrpc.new_thread_pool(2, "test-pool"), apisgrpc.RequestTimeouts("test-requests", 2)
    server = grpc.server(pool, interceptors=[timeouts])
    echo = _Echo(f"unix:{tmp_path}/s.sock", server)
    methods: dict[str, Any] = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo.serve, echo.receive),
        "Text": grpc.unary_unary_rpc_method_handler(echo.serve, bytes.decode),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", methods),))
    server.add_insecure_port(echo.address)
    server.start()
    yield echo
    server.stop(None).wait()
    timeouts.close()
    pool.shutdown()


def test_calls_without_a_request_keep_no_thread_from_others(echo: _Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT", 0.01)
    with silent_calls(echo.address, _METHOD, 3) as calls, grpc.insecure_channel(echo.address) as channel:
        assert [call.code() for call in calls] == [grpc.StatusCode.CANCELLED] * 3
        assert _calls(channel)(b"hello", timeout=_DEADLINE) == b"hello"


def test_calls_without_a_request_keep_nobody_waiting(echo: _Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silent calls do not block others, even before their deadline. There are more of them than initial threads."""
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT", 1000.0)
    with (
        grpc.insecure_channel(echo.address) as channel,
        silent_calls(echo.address, _METHOD, apisgrpc.MAX_THREADS - 5) as calls,
    ):
        assert _calls(channel)(b"hello", timeout=_DEADLINE) == b"hello"
        assert not any(call.done() for call in calls)


def test_no_more_requests_are_served_at_once_than_are_to_be(echo: _Echo) -> None:
    with grpc.insecure_channel(echo.address) as channel:
        lasting = [_calls(channel).future(b"wait", timeout=_DEADLINE) for _ in range(6)]
        with echo.changed:
            assert echo.changed.wait_for(lambda: echo.come == 6, _DEADLINE)
        for _ in range(3):
            # Meanwhile each thread could serve its request.
            assert _calls(channel, "/test/Other").future(b"").code() is grpc.StatusCode.UNIMPLEMENTED
        echo.may_go_on.set()
        assert [each.result() for each in lasting] == [b"wait"] * 6
    assert echo.most <= 2


def test_call_whose_request_has_come_may_last(echo: _Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT", 0.01)
    with grpc.insecure_channel(echo.address) as channel:
        lasting = _calls(channel).future(b"wait", timeout=_DEADLINE)
        assert echo.waits.wait(_DEADLINE)
        with silent_calls(echo.address, _METHOD, 1) as calls:
            assert calls[0].code() is grpc.StatusCode.CANCELLED
        echo.may_go_on.set()
        assert lasting.result() == b"wait"


def test_call_that_ends_without_a_request(echo: _Echo) -> None:
    with grpc.insecure_channel(echo.address) as channel, pytest.raises(grpc.RpcError) as failure:
        channel.stream_unary(_METHOD)(iter(()))
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_request_that_cannot_be_decoded(echo: _Echo) -> None:
    """A client that sends an undecodable request and does not end the call does not keep the server from stopping."""
    over = threading.Event()

    def undecodable() -> Iterator[bytes]:
        yield b"\xff"
        over.wait(_DEADLINE)

    with grpc.insecure_channel(echo.address) as channel:
        call: Any = channel.stream_unary("/test/Text")
        assert call.future(undecodable(), timeout=_DEADLINE).code() is grpc.StatusCode.INTERNAL
        assert echo.server.stop(None).wait(_DEADLINE)
        over.set()


def test_method_that_nobody_serves(echo: _Echo) -> None:
    with grpc.insecure_channel(echo.address) as channel, pytest.raises(grpc.RpcError) as failure:
        _calls(channel, "/test/Other")(b"")
    assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED
