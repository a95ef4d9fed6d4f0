"""Find the PING frames in one direction of a SPDY connection.

Go: none
"""

from __future__ import annotations

from pkg.apimachinery.util.httpstream.spdy.framing import Framer

# `_HEAD` is the size of a frame's header, which ends with the 3-byte length of the payload. `_PING` is the size of a
# PING frame.
_HEAD, _PING = 8, 12
_PING_HEAD = Framer().ping(0)[:_HEAD]


class PingFilter:
    """Find the PING frames at the end of the received bytes, however the bytes are divided.

    A filter serves one direction of one connection from its first byte. Only one thread at a time may use it.
    """

    def __init__(self) -> None:
        # `_begun` is the start of a frame, while too few bytes have arrived to identify the frame.
        self._begun = bytearray()
        self._left = 0  # `_left` is the number of bytes of the frame before `_begun` that have not arrived yet.

    def split(self, view: memoryview, pieces: int) -> tuple[bytes, bytes, memoryview]:
        """Split the bytes into those up to the last frame that is not a PING, the later PING frames, and the rest.

        Together the results are the input in its order, except that a PING after a part of a frame follows the whole
        frame. A frame's header is one piece, and its payload is another; after `pieces` pieces the rest is left for the
        next call. The first bytes of a frame are kept until they identify it.
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
