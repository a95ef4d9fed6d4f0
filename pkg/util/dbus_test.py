"""Test messages of the system bus."""

from __future__ import annotations

import jeepney
import pytest

from pkg.util import dbus

OBJECT = jeepney.DBusAddress("/a", interface="a.b")
SHORT = jeepney.new_signal(OBJECT, "Short", "s", ("text",)).serialise(serial=1)
LONGEST = jeepney.new_signal(OBJECT, "Longest", "ay", (bytes(dbus.MAX_MESSAGE - 80),)).serialise(serial=2)
TOO_LONG = jeepney.new_signal(OBJECT, "TooLong", "ay", (bytes(dbus.MAX_MESSAGE),)).serialise(serial=3)


@pytest.mark.parametrize("at_most", [1, 7, 1 << 20])
def test_messages_are_put_together(at_most: int) -> None:
    reader, stream = dbus.Reader(), SHORT + TOO_LONG + LONGEST + SHORT
    found = []
    while stream:
        size = min(reader.bytes_desired(), at_most)
        message = reader.feed(stream[:size])
        stream = stream[size:]
        if message is not None:
            found.append(message)
    assert len(LONGEST) <= dbus.MAX_MESSAGE < len(TOO_LONG)
    assert found == [SHORT, b"", LONGEST, SHORT]


def test_nothing_of_the_next_message_is_received() -> None:
    """The reader never receives a part of the next message, because that part could carry descriptors."""
    reader = dbus.Reader()
    received = 0
    while True:
        size = reader.bytes_desired()
        message = reader.feed(SHORT[received : received + size])
        received += size
        if message is not None:
            break
    assert received == len(SHORT)


@pytest.mark.parametrize(
    "message", [b"", SHORT[:20], b"HTTP/1.1 400 Bad Request\r\n\r\n", SHORT.replace(b"a.b", b"\xff.b")]
)
def test_header_that_cannot_be_read(message: bytes) -> None:
    assert dbus.header_of(message) is None


def test_header() -> None:
    header = dbus.header_of(SHORT)
    assert header is not None
    assert header.fields[jeepney.HeaderFields.member] == "Short"


@pytest.mark.parametrize(
    ("owner", "sender", "values", "matches"),
    [
        (None, dbus.BUS, ("a.b", ":1", ":2"), True),
        (None, dbus.BUS, ("a.c", ":1", ":2"), False),
        (None, ":3", ("a.b", ":1", ":2"), False),
        ("", dbus.BUS, ("a.b", ":1", ""), True),
        ("", dbus.BUS, ("a.b", ":1", ":2"), False),
    ],
)
def test_owner_changed(owner: str | None, sender: str, values: tuple[str, ...], matches: bool) -> None:
    bus = jeepney.DBusAddress("/org/freedesktop/DBus", interface=dbus.BUS)
    signal = jeepney.new_signal(bus, "NameOwnerChanged", "sss", values)
    signal.header.fields[jeepney.HeaderFields.sender] = sender
    assert dbus.owner_changed("a.b", owner).matches(signal) is matches
