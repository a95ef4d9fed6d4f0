"""Read messages of the system bus, where any process may send messages to any other.

Go: none; github.com/godbus/dbus decodes every message that arrives
"""

from __future__ import annotations

import jeepney
from jeepney import low_level

from pkg import klog

# This is the name of the bus itself.
BUS = "org.freedesktop.DBus"
# A longer message, in bytes, is dropped. Messages of systemd and logind are short.
MAX_MESSAGE = 64 << 10

_READ_SIZE = 64 << 10
# From this many bytes of a message, its length can be computed.
_PREFIX_SIZE = 16


class Reader:
    """Assemble received data into messages, and drop messages that are too long."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._size: int | None = None  # The size is known once the message's prefix has arrived.
        self._missing = _PREFIX_SIZE

    def bytes_desired(self) -> int:
        """Return the maximum number of bytes to receive next.

        The number never extends into the next message, so that received descriptors belong to this message.
        """
        return min(self._missing, _READ_SIZE)

    def feed(self, data: bytes) -> bytes | None:
        """Add data. Return the message if the data completes it, or b"" if it was too long, otherwise None."""
        self._missing -= len(data)
        if self._size is None or self._size <= MAX_MESSAGE:
            self._data += data
        if self._missing == 0 and self._size is None:
            self._size = low_level.calc_msg_size(bytes(self._data))
            self._missing = self._size - _PREFIX_SIZE
        if self._missing > 0:
            return None
        message = bytes(self._data)
        if self._size is not None and self._size > MAX_MESSAGE:
            klog.v(4).info_s("Ignoring a message of the system bus that is too long", size=self._size)
            message = b""
        self._data, self._size, self._missing = bytearray(), None, _PREFIX_SIZE
        return message


def header_of(message: bytes) -> low_level.Header | None:
    """Return the header of an untrusted message, or None if it cannot be parsed."""
    try:
        header, _ = low_level.Header.from_buffer(message)
    except Exception as err:
        # jeepney raises exceptions of many types for a malformed header.
        klog.v(4).info_s("Ignoring a message of the system bus that cannot be read", err=err)
        return None
    return header


def owner_changed(name: str, owner: str | None = None) -> jeepney.MatchRule:
    """Return a rule that matches the bus's signal for a change of a name's owner.

    With `owner`, the rule matches only when that connection becomes the owner; "" matches when the name loses its
    owner.
    """
    rule = jeepney.MatchRule(type="signal", sender=BUS, interface=BUS, member="NameOwnerChanged")
    rule.add_arg_condition(0, name)
    if owner is not None:
        rule.add_arg_condition(2, owner)
    return rule
