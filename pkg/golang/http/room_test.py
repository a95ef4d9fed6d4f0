"""Test which connections stay when there is not room for all."""

from __future__ import annotations

import pytest

from pkg import golang
from pkg.golang import http
from pkg.golang.http.response import ClientGone
from pkg.golang.http.room import CONNECTION_COST_BYTES, MAX_UNAUTHENTICATED_PER_SOURCE, Room, source_of


class Clients:
    """Manage connections by name in a room."""

    def __init__(self, **limits: int) -> None:
        self.evicted: list[str] = []
        self.room: Room[str] = Room(http.Limits(**limits), self.evicted.append)

    def enter(self, *names: str, source: str = "s") -> bool:
        return all(self.room.enter(name, source) for name in names)

    def admit(self, name: str, user: str = "u", kind: str = "k", *, lasting: bool = False) -> bool:
        try:
            self.room.admit(name, user, kind, lasting=lasting)
        except http.HTTPError as err:
            assert err.code == 429
            return False
        return True

    def enter_and_admit(self, names: str, user: str = "u", kind: str = "k", *, lasting: bool = False) -> str:
        """Admit the connections with the given one-letter names, and return the names of those that were admitted."""
        self.enter(*names)
        return "".join(name for name in names if self.admit(name, user, kind, lasting=lasting))


def test_who_has_waited_longest_makes_way() -> None:
    clients = Clients(connections=3)
    assert clients.enter("a", "b", "c")
    clients.admit("a")
    clients.room.rest("a")
    assert clients.enter("d", "e")
    assert clients.evicted == ["b", "c"]
    # Sending data does not make an unauthenticated connection look younger.
    clients.room.hold("d", 1)
    assert clients.enter("f", "g")
    assert clients.evicted == ["b", "c", "a", "d"]


def test_who_is_served_stays() -> None:
    clients = Clients(connections=2)
    assert clients.enter_and_admit("ab") == "ab"
    assert not clients.enter("c")
    clients.room.leave("a")
    assert clients.enter("c")
    assert clients.evicted == []


def test_one_user_leaves_room_for_others() -> None:
    clients = Clients(per_user=4, per_user_and_kind=2)
    assert clients.enter_and_admit("abc", kind="logs") == "ab"
    assert clients.enter_and_admit("de", kind="exec") == "de"
    assert clients.enter_and_admit("f", kind="metrics") == ""
    assert clients.enter_and_admit("g", user="v", kind="logs") == "g"
    clients.room.rest("a")
    assert clients.admit("f", kind="metrics")
    assert not clients.admit("c", kind="attach"), "there are four still"
    clients.room.leave("b")
    assert clients.admit("c", kind="attach")


def test_requests_that_last_leave_room_for_others() -> None:
    clients = Clients(connections=4, reserved=2)
    assert clients.enter_and_admit("abc", lasting=True) == "ab"
    assert clients.admit("c", user="v", kind="metrics")
    clients.room.leave("a")
    assert clients.enter_and_admit("d", user="v", lasting=True) == "d"


def test_heads_of_one_user() -> None:
    clients = Clients(user_bytes=2 * CONNECTION_COST_BYTES + 10)
    clients.enter("a", "b", "c")
    clients.room.hold("a", 10)
    clients.room.hold("b", 10)
    assert [clients.admit("a"), clients.admit("b"), clients.admit("c")] == [True, False, True]
    clients.room.leave("a")
    assert clients.admit("b")


def test_clients_of_one_source_that_are_not_known() -> None:
    clients = Clients(unauthenticated_per_source=2)
    clients.enter("x", source="other")
    clients.enter("a", "b", "c")
    assert clients.evicted == ["a"]
    clients.admit("b")
    clients.enter("d")
    assert clients.evicted == ["a"]
    clients.room.rest("b")
    clients.enter("e", "f")
    assert clients.evicted == ["a", "c", "d"]
    # An evicted connection may not have ended yet, but it can do nothing more.
    with pytest.raises(ClientGone):
        clients.room.hold("c", 1)
    with pytest.raises(ClientGone):
        clients.admit("c")


def test_a_crowd_from_one_source() -> None:
    """As many clients as follow the logs of a full node may connect at the same time, and leave room for others."""
    clients = Clients()
    clients.enter(*(f"follower-{number}" for number in range(MAX_UNAUTHENTICATED_PER_SOURCE)))
    clients.enter(*(f"other-{number}" for number in range(20)), source="other")
    assert MAX_UNAUTHENTICATED_PER_SOURCE >= 110 * 2
    assert clients.evicted == []


def test_what_clients_that_are_not_known_hold_together() -> None:
    clients = Clients(unauthenticated_bytes=3 * CONNECTION_COST_BYTES)
    clients.enter("a", "b", "c", "d")
    assert clients.evicted == ["a"]
    clients.room.leave("a")
    clients.admit("d")
    clients.room.hold("c", 10)
    assert clients.evicted == ["a"]
    with pytest.raises(ClientGone):
        clients.room.hold("b", 2 * CONNECTION_COST_BYTES)
    assert clients.evicted == ["a", "b"]


def test_there_is_room_only_once_those_who_make_way_have_gone() -> None:
    clients = Clients(unauthenticated_bytes=3 * CONNECTION_COST_BYTES)
    clients.enter("a", "b")
    clients.room.hold("a", CONNECTION_COST_BYTES)
    thread = golang.go(clients.room.hold, "b", CONNECTION_COST_BYTES, name="test-holds")
    thread.join(0.05)
    assert thread.is_alive()
    assert clients.evicted == ["a"]
    clients.room.leave("a")
    thread.join(30)
    assert not thread.is_alive()


def test_nothing_is_kept_of_those_who_left() -> None:
    clients = Clients(connections=3)
    clients.enter_and_admit("abc")
    for name in "abc":
        clients.room.leave(name)
    clients.enter("x", "y", "z")
    assert clients.evicted == []
    for name in "xyz":
        clients.room.leave(name)
    empty = Clients().room
    for attribute in ("_waiting", "_admitted", "_unknown", "_unknown_bytes", "_leaving", "_users", "_lasting"):
        assert getattr(clients.room, attribute) == getattr(empty, attribute)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (None, ""),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_source_of(address: str | None, source: str) -> None:
    assert source_of(None if address is None else (address, 1)) == source
