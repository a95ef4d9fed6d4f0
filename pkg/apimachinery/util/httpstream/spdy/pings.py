"""Finds the PING frames in one direction of a SPDY connection. Go has no counterpart."""

from __future__ import annotations

from pkg.apimachinery.util.httpstream.spdy.framing import Framer

# Bytes of a frame's head, of which the last three are the length of what follows, and of a whole PING frame.
_HEAD, _PING = 8, 12
_PING_HEAD = Framer().ping(0)[:_HEAD]


class PingFilter:
    """Takes the PING frames out of a stream of frames, whatever the pieces in which its bytes come.

    For one direction of one connection, from its first byte on. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._begun = bytearray()  # the beginning of a frame, as long as too little has come to tell what it is
        self._left = 0  # bytes of the frame before it that have not come yet

    def split(self, view: memoryview, pieces: int) -> tuple[bytes, bytes, memoryview]:
        """The PING frames that are complete with these bytes, the bytes of all other frames, and what is still to do.

        A frame's head is a piece, and so is what follows it: after so many pieces the rest is left for the next call.
        The first bytes of a frame are kept until there are enough of them to tell.
        """
        pings, others = bytearray(), bytearray()
        while view and pieces > 0:
            pieces -= 1
            if self._left:
                others += view[: self._left]
                came = min(self._left, len(view))
                self._left -= came
                view = view[came:]
                continue
            size = _PING if self._begun.startswith(_PING_HEAD) else _HEAD
            came = min(size - len(self._begun), len(view))
            self._begun += view[:came]
            view = view[came:]
            if len(self._begun) == _PING:
                pings += self._begun
                self._begun.clear()
            elif len(self._begun) == _HEAD and self._begun != _PING_HEAD:
                others += self._begun
                self._left = int.from_bytes(self._begun[5:])
                self._begun.clear()
        return bytes(pings), bytes(others), view
