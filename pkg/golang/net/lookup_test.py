"""Test look-ups: a resolver that hangs delays only the callers that use it, and the look-ups are bounded."""

from __future__ import annotations

import socket

import pytest

from pkg import golang
from pkg.golang import net
from pkg.golang.net import lookup
from pkg.golang.net.lookup import MAX_ADDRESSES
from pkg.golang.net.testing import Resolver, stream_address
from pkg.golang.testing import OnlyTurn, frames_kept_after, out_of_threads
from pkg.util.testing import lines_run

CTX = golang.background()
WAIT = 30.0


def try_look_up(ctx: golang.Context, host: str, seconds: float = 0.05) -> str:
    """Return the result of a look-up within `seconds`."""
    limited, cancel = golang.with_timeout(ctx, seconds)
    try:
        net.lookup_host(limited, host, 80)
    except OSError as err:
        return err.strerror or str(err)
    finally:
        cancel()
    return ""


def test_look_up_ends_with_its_context(names: Resolver) -> None:
    assert try_look_up(CTX, "slow") == "lookup slow: i/o timeout"
    ctx, cancel = golang.with_cancel(CTX)
    thread = golang.go(cancel, name="cancel")
    with pytest.raises(ConnectionAbortedError):
        net.lookup_host(ctx, "slow", 80)
    thread.join()
    names.go_on.set()
    assert try_look_up(CTX, "slow", WAIT) == "Name or service not known"


def test_those_who_ask_for_one_name_share_its_look_up(names: Resolver) -> None:
    for _ in range(5):
        try_look_up(CTX, "slow")
    assert names.asked == ["slow"]
    names.go_on.set()


def test_pod_with_many_slow_look_ups_has_no_more_threads_and_holds_up_no_other(names: Resolver) -> None:
    one, other = net.with_owner(CTX, "one"), net.with_owner(CTX, "other")
    with socket.socket() as fast:
        names.addresses["fast"] = [stream_address(fast)]
        outcomes = [try_look_up(one, f"slow-{number}") for number in range(6)]
        assert outcomes[4:] == ["lookup slow-4: i/o timeout", "lookup slow-5: i/o timeout"]
        assert len(names.asked) == 4
        assert try_look_up(other, "fast", WAIT) == ""
        assert try_look_up(CTX, "fast", WAIT) == ""
    names.go_on.set()


def test_a_fifth_look_up_of_a_pod_begins_when_one_ends(names: Resolver) -> None:
    """A fifth look-up waits instead of failing.

    Otherwise, with a slow name server, a pod's fifth liveness probe would fail in each period.
    """
    ctx = net.with_owner(CTX, "one")
    for number in range(4):
        try_look_up(ctx, f"slow-{number}", 0.0)
    thread = golang.go(names.go_on.set, name="resolver")
    assert try_look_up(ctx, "fifth", WAIT) == "Name or service not known"
    thread.join()


def test_pods_that_come_and_go_leave_no_more_threads_than_there_may_be(names: Resolver) -> None:
    with socket.socket() as server:
        names.addresses["server"] = [stream_address(server)]
        outcomes = [try_look_up(net.with_owner(CTX, f"pod-{number}"), "slow", 0.0) for number in range(258)]
        assert outcomes[256:] == ["256 look-ups of pods are running"] * 2
        # The kubelet's own look-ups have a separate limit.
        assert try_look_up(CTX, "server", WAIT) == ""
    names.go_on.set()


def test_look_up_without_a_thread_fails_and_leaves_nothing(names: Resolver) -> None:
    with out_of_threads("lookup-"):
        assert "can't start new thread" in try_look_up(CTX, "slow", WAIT)
    names.go_on.set()
    assert try_look_up(CTX, "slow", WAIT) == "Name or service not known"


def test_name_that_nobody_has_keeps_nothing_of_the_caller(names: Resolver) -> None:
    names.go_on.set()
    assert frames_kept_after(lambda: net.lookup_host(CTX, "slow", 80)) == []


def test_a_look_up_that_waits_lets_others_have_their_turn(names: Resolver) -> None:
    only = OnlyTurn()
    with only.turn:
        thread = golang.go(only.when_free, names.go_on.set, name="resolver")
        assert try_look_up(only.ctx, "slow", WAIT) == "Name or service not known"
    thread.join()


def test_of_a_name_with_addresses_without_end_the_first_are_tried(names: Resolver) -> None:
    """Only the first addresses of a name are tried.

    Each unreachable address takes time, during which a probe keeps its turn.
    """
    names.addresses["many"] = [
        (socket.AF_INET, socket.SOCK_STREAM, 0, "", (f"224.0.{number >> 8}.{number & 255}", 80))
        for number in range(4000)
    ]
    assert net.lookup_host(CTX, "many", 80) == names.addresses["many"][:MAX_ADDRESSES]
    # The other addresses cause no work either.
    assert lines_run(lambda: lookup._getaddrinfo("many", 80, 0)) < 100
