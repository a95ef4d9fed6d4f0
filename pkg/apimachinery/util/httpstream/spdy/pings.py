"""Finds the PING frames in one direction of a SPDY connection. Go has no counterpart."""

from __future__ import annotations

from pkg.apimachinery.util.httpstream.spdy.framing import Framer

# Bytes of a frame's head, of which the last three are the length of what follows, and of a whole PING frame.
_HEAD, _PING = 8, 12
_PING_HEAD = Framer().ping(0)[:_HEAD]


class PingFilter:
    """Finds the PING frames that end what has come, in a stream of frames, whatever the pieces in which its bytes come.

    For one direction of one connection, from its first byte on. Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._begun = bytearray()  # the beginning of a frame, as long as too little has come to tell what it is
        self._left = 0  # bytes of the frame before it that have not come yet

    def split(self, view: memoryview, pieces: int) -> tuple[bytes, bytes, memoryview]:
        """What comes up to the last frame that is no PING, the PING frames behind it, and what is still to do.

        Together they are what was given, in its order: a PING that came later than a part of a frame stands behind all
        of that frame. A frame's head is a piece, and so is what follows it: after so many pieces the rest is left for
        the next call. The first bytes of a frame are kept until there are enough of them to tell.
        """
        before, pings = bytearray(), bytearray()
        while view and pieces > 0:
            pieces -= 1
            if self._left:
                before += view[: self._left]
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
                before += pings + self._begun
                pings.clear()
                self._left = int.from_bytes(self._begun[5:])
                self._begun.clear()
        return bytes(before), bytes(pings), view
