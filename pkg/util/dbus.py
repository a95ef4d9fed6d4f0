"""Messages of the system bus, where anybody may send a message to anybody.

Go: none; github.com/godbus/dbus decodes every message that comes
"""

from __future__ import annotations

import jeepney
from jeepney import low_level

from pkg import klog

# The name of the bus itself.
BUS = "org.freedesktop.DBus"
# Bytes of a message. Those of systemd and logind are short.
MAX_MESSAGE = 64 << 10

_READ_SIZE = 64 << 10
# The bytes of a message that tell how long it is.
_PREFIX_SIZE = 16


class Reader:
    """Puts together what arrives, message by message. Those that are too long are left out."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._size: int | None = None  # of the message, once its prefix is there
        self._missing = _PREFIX_SIZE

    def bytes_desired(self) -> int:
        """How much to receive at most: nothing of the next message, so that descriptors that come are this one's."""
        return min(self._missing, _READ_SIZE)

    def feed(self, data: bytes) -> bytes | None:
        """The message, if this is the end of one; empty if it was too long."""
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
    """The header of a message of anybody, None if it cannot be read."""
    try:
        header, _ = low_level.Header.from_buffer(message)
    except Exception as err:
        # jeepney raises exceptions of many kinds for a malformed header.
        klog.v(4).info_s("Ignoring a message of the system bus that cannot be read", err=err)
        return None
    return header


def owner_changed(name: str, owner: str | None = None) -> jeepney.MatchRule:
    """The bus's signal when a name changes hands; with `owner`, only when that connection gets it ("": nobody)."""
    rule = jeepney.MatchRule(type="signal", sender=BUS, interface=BUS, member="NameOwnerChanged")
    rule.add_arg_condition(0, name)
    if owner is not None:
        rule.add_arg_condition(2, owner)
    return rule
