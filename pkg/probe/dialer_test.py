"""Tests of connecting: names that are slow to look up, and hosts of several addresses."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest

from pkg import golang
from pkg.golang.testing import out_of_threads
from pkg.probe import Result, dialer, probe_tcp

CTX = golang.background()
TIMEOUT = 30.0


class Names:
    """Stands in for the resolver: a name has these addresses, and a look-up may be held up."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.addresses: dict[str, list[tuple[str, int]]] = {}
        self.go_on = threading.Event()
        self.asked: list[str] = []
        monkeypatch.setattr(dialer, "_getaddrinfo", self._getaddrinfo)

    def _getaddrinfo(self, host: str, port: int, flags: int) -> list[Any]:
        if flags:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        self.asked.append(host)
        if host not in self.addresses:
            self.go_on.wait(TIMEOUT)
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in self.addresses[host]]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    return Names(monkeypatch)


def test_slow_look_up_ends_with_the_probe(names: Names) -> None:
    assert probe_tcp(CTX, "slow", 80, 0.2) == (Result.FAILURE, "dial tcp: lookup slow: i/o timeout")
    names.go_on.set()
    assert probe_tcp(CTX, "slow", 80, TIMEOUT) == (
        Result.FAILURE,
        "dial tcp: lookup slow: Name or service not known",
    )


def test_probes_of_one_name_share_its_look_up(names: Names) -> None:
    for _ in range(5):
        assert probe_tcp(CTX, "slow", 80, 0.05)[0] is Result.FAILURE
    assert names.asked == ["slow"]
    names.go_on.set()


def test_pod_with_many_slow_look_ups_has_no_more_threads_and_holds_up_no_other(names: Names) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        names.addresses["fast"] = [listener.getsockname()]
        one, other = dialer.with_owner(CTX, "one"), dialer.with_owner(CTX, "other")
        for number in range(3 * dialer.MAX_LOOKUPS_PER_OWNER):
            result, output = probe_tcp(one, f"slow-{number}", 80, 0.05)
            assert result is Result.FAILURE
        assert output.endswith("look-ups of the same pod are under way")
        assert len(names.asked) == dialer.MAX_LOOKUPS_PER_OWNER
        assert probe_tcp(other, "fast", 80, TIMEOUT)[0] is Result.SUCCESS
    names.go_on.set()


def test_look_up_without_a_thread_is_a_failure_that_says_so(names: Names) -> None:
    with out_of_threads("probe-lookup-"):
        result, output = probe_tcp(CTX, "slow", 80, TIMEOUT)
    assert result == Result.FAILURE
    assert output.startswith("dial tcp: lookup slow: start thread 'probe-lookup-slow'")
    assert "can't start new thread" in output
    assert dialer._lookups == {}


def test_cancelled_look_up_raises(names: Names) -> None:
    ctx, cancel = golang.with_cancel(CTX)
    thread = golang.go(cancel, name="cancel")
    with pytest.raises(golang.Canceled):
        probe_tcp(ctx, "slow", 80, TIMEOUT)
    thread.join()
    names.go_on.set()


def test_address_that_does_not_answer_leaves_time_for_the_next(names: Names) -> None:
    with socket.socket() as full, socket.create_server(("127.0.0.1", 0)) as listener:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        names.addresses["two"] = [full.getsockname(), listener.getsockname()]
        # The queue holds one connection; the next waits for room that never comes.
        with socket.create_connection(full.getsockname()):
            assert probe_tcp(CTX, "two", 80, 5.0) == (Result.SUCCESS, "")


def test_first_failure_is_told(names: Names) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        names.addresses["two"] = [unused.getsockname(), ("not an address", 1)]
        result, output = probe_tcp(CTX, "two", 80, TIMEOUT)
    assert (result, output) == (Result.FAILURE, "dial tcp two:80: connect: connection refused")


def test_host_that_can_be_no_name() -> None:
    result, _ = probe_tcp(CTX, "a" * 300, 80, TIMEOUT)
    assert result is Result.FAILURE
