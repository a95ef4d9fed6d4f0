"""Test connecting to names with slow look-ups and to hosts with several addresses."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

import pytest

from pkg import golang
from pkg.golang import net
from pkg.golang.net.lookup import MAX_LOOKUPS_OF_PODS
from pkg.golang.net.testing import Resolver, silent, stream_address
from pkg.golang.testing import OnlyTurn, out_of_files, out_of_threads
from pkg.probe import NoSocketError, Result, dialer, httpclient, probe_grpc, probe_http, probe_tcp
from pkg.probe.testing import HOST, listening

CTX = golang.background()
TIMEOUT = 30.0


def test_slow_look_up_ends_with_the_probe(names: Resolver) -> None:
    assert probe_tcp(CTX, "slow", 80, 0.2) == (Result.FAILURE, "dial tcp: lookup slow: i/o timeout")
    names.go_on.set()
    assert probe_tcp(CTX, "slow", 80, TIMEOUT) == (
        Result.FAILURE,
        "dial tcp: lookup slow: Name or service not known",
    )


@pytest.mark.parametrize("letter", ["x", "ü"])
def test_name_that_is_too_long_is_not_looked_up(names: Resolver, letter: str) -> None:
    assert probe_tcp(CTX, letter * 300, 80, TIMEOUT) == (
        Result.FAILURE,
        f"dial tcp: lookup {letter * 254}: no such host",
    )
    assert names.asked == []


def test_cancelled_look_up_raises(names: Resolver) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    thread = golang.go(cancel, name="cancel")
    with pytest.raises(golang.Canceled):
        probe_tcp(ctx, "slow", 80, TIMEOUT)
    thread.join()
    names.go_on.set()


def test_address_that_does_not_answer_leaves_time_for_the_next(names: Resolver) -> None:
    with silent("127.0.0.2") as dead, socket.create_server(("127.0.0.1", 0)) as listener:
        names.addresses["two"] = [dead, stream_address(listener)]
        assert probe_tcp(CTX, "two", 80, 5.0) == (Result.SUCCESS, "")


def test_first_failure_is_told(names: Resolver) -> None:
    with socket.socket() as unused, socket.socket() as other:
        unused.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        names.addresses["two"] = [stream_address(unused), stream_address(other)]
        result, output = probe_tcp(CTX, "two", 80, TIMEOUT)
    assert (result, output) == (Result.FAILURE, "dial tcp two:80: connect: connection refused")


def test_host_that_can_be_no_name() -> None:
    result, _ = probe_tcp(CTX, "a" * 300, 80, TIMEOUT)
    assert result is Result.FAILURE


@pytest.mark.parametrize(
    "probe",
    [
        lambda port: probe_tcp(CTX, "127.0.0.1", port, TIMEOUT),
        lambda port: probe_http(CTX, f"http://127.0.0.1:{port}/", [], TIMEOUT),
        lambda port: probe_grpc(CTX, "127.0.0.1", "", port, TIMEOUT),
    ],
    ids=["tcp", "http", "grpc"],
)
def test_container_has_not_failed_when_no_socket_is_left(probe: Callable[[int], tuple[Result, str]]) -> None:
    """A lack of sockets is not a failure of the container.

    Otherwise a shortage on the node would kill all containers with a liveness probe.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with out_of_files(), pytest.raises(NoSocketError, match="too many open files"):
            probe(port)


@pytest.mark.usefixtures("names")
def test_container_has_not_failed_when_no_thread_is_left_to_look_up_its_name() -> None:
    with out_of_threads("lookup-"), pytest.raises(NoSocketError, match=r"dial tcp: lookup slow: .* thread"):
        probe_tcp(CTX, "slow", 80, TIMEOUT)


def test_container_has_not_failed_when_other_pods_take_the_room_to_look_up_names(names: Resolver) -> None:
    limited, cancel = golang.with_timeout(CTX, 0.0)
    for number in range(MAX_LOOKUPS_OF_PODS):
        with pytest.raises(TimeoutError):
            net.lookup_host(net.with_owner(limited, f"other-{number}"), "slow", 80)
    cancel()
    with pytest.raises(NoSocketError, match="256 look-ups of pods are running"):
        probe_tcp(net.with_owner(CTX, "pod"), "name", 80, TIMEOUT)
    names.go_on.set()


def test_a_connection_that_waits_lets_others_have_their_turn() -> None:
    only = OnlyTurn()

    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        only.when_free(lambda: connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n"))

    with listening(answer) as port, only.turn:
        assert httpclient.get(only.ctx, f"http://{HOST}:{port}/", []).status == 204


@pytest.mark.parametrize("by_tcp", [True, False])
def test_a_connection_lets_others_have_their_turn_while_it_is_closed(
    monkeypatch: pytest.MonkeyPatch, by_tcp: bool
) -> None:
    """A probe gives up its turn while it closes its connection.

    Closing waits up to one second for the server to receive the data that was sent.
    """
    only, free = OnlyTurn(), list[bool]()

    class Socket(socket.socket):
        def close(self) -> None:
            free.append(only.is_free())
            super().close()

    def dial(ctx: golang.Context, host: str, port: int) -> socket.socket:
        return Socket()

    with monkeypatch.context() as patch, only.turn:
        patch.setattr("pkg.probe.tcp.dial", dial)
        patch.setattr(dialer, "dial", dial)
        if by_tcp:
            assert probe_tcp(only.ctx, HOST, 80, TIMEOUT) == (Result.SUCCESS, "")
        else:
            with dialer.dialed(only.ctx, HOST, 80):
                pass
    assert free == [True]


def test_only_the_connection_that_is_used_may_wait_when_it_is_closed(
    names: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing a connection that lost to a faster one does not wait.

    The probe has its turn while it closes such a connection.
    """
    waits = list[bool]()

    class Socket(socket.socket):
        def close(self) -> None:
            on, seconds = struct.unpack("ii", self.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
            waits.append(bool(on and seconds))
            super().close()

    with silent("::1") as outrun, socket.create_server(("127.0.0.1", 0)) as listener, monkeypatch.context() as patch:
        names.addresses["two"] = [outrun, stream_address(listener)]
        patch.setattr(socket, "socket", Socket)
        assert probe_tcp(CTX, "two", 80, TIMEOUT) == (Result.SUCCESS, "")
    assert waits == [False, True]
