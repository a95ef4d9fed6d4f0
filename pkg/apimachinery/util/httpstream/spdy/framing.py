"""Convert frames of SPDY/3.1 to bytes, and bytes to frames.

Go: github.com/moby/spdystream/spdy (read.go, write.go, types.go)
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pkg.apimachinery.util.httpstream.spdy.dictionary import HEADER_DICTIONARY

# `MAX_DATA` is the maximum length of a frame, which its 24-bit length field can express.
MAX_DATA = (1 << 24) - 1
# `_MAX_CONTROL` is the maximum size of a control frame, compressed or not. No legitimate control frame is larger.
_MAX_CONTROL = 1 << 20
_VERSION = 0x8003
_FLAG_FIN = 0x01
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _SETTINGS, _PING, _GO_AWAY, _HEADERS, _WINDOW_UPDATE = 1, 2, 3, 4, 6, 7, 8, 9
_HEAD = struct.Struct(">II")
_U32 = struct.Struct(">I")
# These are the statuses of a reset stream.
RST_PROTOCOL_ERROR = 1
RST_CANCEL = 5


class ProtocolError(OSError):
    """Signal that the received data is not SPDY/3.1; the connection is no longer usable."""


@dataclass(frozen=True, slots=True)
class SynStream:
    """Represent a stream that the other side opens; with `fin` it sends no data on the stream."""

    stream_id: int
    headers: dict[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True)
class SynReply:
    """Represent the other side's acceptance of a stream."""

    stream_id: int
    headers: dict[str, str]
    fin: bool = False


@dataclass(frozen=True, slots=True)
class Data:
    """Represent data of a stream; a large frame arrives in several parts, and `fin` marks the last data."""

    stream_id: int
    data: memoryview
    fin: bool = False


@dataclass(frozen=True, slots=True)
class RstStream:
    """Represent the other side's abort of a stream in both directions."""

    stream_id: int
    status: int


@dataclass(frozen=True, slots=True)
class Ping:
    ping_id: int


@dataclass(frozen=True, slots=True)
class GoAway:
    """Represent the other side's announcement that it opens and accepts no new streams."""

    last_good_stream_id: int


Frame = SynStream | SynReply | Data | RstStream | Ping | GoAway


class Framer:
    """Encode and decode the frames of one side of one connection.

    Only one thread at a time may use a framer. The compression of headers depends on earlier headers. Parts of SPDY
    that Kubernetes does not use are ignored: settings, and flow control windows, which the Go side neither respects nor
    announces.
    """

    def __init__(self) -> None:
        self._compress = zlib.compressobj(zdict=HEADER_DICTIONARY)
        self._decompress = zlib.decompressobj(zdict=HEADER_DICTIONARY)
        self._rest = b""
        # These fields describe the incoming data frame: its stream, its missing bytes, and whether it is the stream's
        # last.
        self._stream_id = 0
        self._missing = 0
        self._fin = False

    # The following methods turn frames into bytes.

    def syn_stream(self, stream_id: int, headers: Mapping[str, str], fin: bool = False) -> bytes:
        """Return the frame that opens a stream; the streams of a client have odd numbers."""
        return self._control(_SYN_STREAM, struct.pack(">IIBB", stream_id, 0, 0, 0) + self._header_block(headers), fin)

    def syn_reply(self, stream_id: int, headers: Mapping[str, str], fin: bool = False) -> bytes:
        return self._control(_SYN_REPLY, _U32.pack(stream_id) + self._header_block(headers), fin)

    def rst_stream(self, stream_id: int, status: int) -> bytes:
        return self._control(_RST_STREAM, _HEAD.pack(stream_id, status))

    def ping(self, ping_id: int) -> bytes:
        return self._control(_PING, _U32.pack(ping_id))

    def go_away(self, last_good_stream_id: int) -> bytes:
        return self._control(_GO_AWAY, _HEAD.pack(last_good_stream_id, 0))

    @staticmethod
    def data_head(stream_id: int, length: int, fin: bool = False) -> bytes:
        """Return the header for a data frame of `length` bytes, at most MAX_DATA."""
        return _HEAD.pack(stream_id, fin << 24 | length)

    @staticmethod
    def _control(kind: int, payload: bytes, fin: bool = False) -> bytes:
        return _HEAD.pack(_VERSION << 16 | kind, fin << 24 | len(payload)) + payload

    def _header_block(self, headers: Mapping[str, str]) -> bytes:
        fields = [_U32.pack(len(headers))]
        for name, value in headers.items():
            for text in (name.lower().encode(), value.encode()):
                fields += [_U32.pack(len(text)), text]
        return self._compress.compress(b"".join(fields)) + self._compress.flush(zlib.Z_SYNC_FLUSH)

    # The following methods turn bytes into frames.

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that these bytes complete; raise ProtocolError on failure.

        The caller must use the frames before the next call.
        """
        view = memoryview(self._rest + data if self._rest else data)
        self._rest = b""
        while view:
            if self._missing:
                part = view[: self._missing]
                view = view[len(part) :]
                self._missing -= len(part)
                yield Data(self._stream_id, part, self._fin and not self._missing)
                continue
            if len(view) < _HEAD.size:
                break
            word, flags_and_length = _HEAD.unpack_from(view)
            fin, length = bool(flags_and_length >> 24 & _FLAG_FIN), flags_and_length & MAX_DATA
            if not word >> 31:
                self._stream_id, self._missing, self._fin = word, length, fin
                view = view[_HEAD.size :]
                if not length:
                    yield Data(word, view[:0], fin)
                continue
            if word >> 16 != _VERSION or length > _MAX_CONTROL:
                raise ProtocolError(f"SPDY frame {word:#x} with {length} bytes")
            end = _HEAD.size + length
            if len(view) < end:
                break
            frame = self._control_frame(word & 0xFFFF, view[_HEAD.size : end], fin)
            view = view[end:]
            if frame is not None:
                yield frame
        self._rest = bytes(view)

    def _control_frame(self, kind: int, payload: memoryview, fin: bool) -> Frame | None:
        try:
            match kind:
                case 1:  # This number stands for SYN_STREAM.
                    return SynStream(_number(payload), self._headers(payload[10:]), fin)
                case 2:  # This number stands for SYN_REPLY.
                    return SynReply(_number(payload), self._headers(payload[4:]), fin)
                case 3:  # This number stands for RST_STREAM.
                    return RstStream(*_HEAD.unpack(payload))
                case 6:  # This number stands for PING.
                    return Ping(*_U32.unpack(payload))
                case 7:  # This number stands for GOAWAY.
                    return GoAway(_number(payload))
                case 8:  # HEADERS: nothing uses these headers, but the compression of later headers depends on them.
                    self._headers(payload[4:])
        except (struct.error, zlib.error, UnicodeDecodeError) as err:
            raise ProtocolError(f"SPDY control frame {kind}: {err}") from err
        return None

    def _headers(self, block: memoryview) -> dict[str, str]:
        raw = self._decompress.decompress(block, _MAX_CONTROL)
        if self._decompress.unconsumed_tail:
            raise ProtocolError("SPDY headers are too large")
        (count,) = _U32.unpack_from(raw)
        texts: list[str] = []
        position = _U32.size
        while len(texts) < 2 * count:
            (length,) = _U32.unpack_from(raw, position)
            position += _U32.size + length
            if position > len(raw):
                raise ProtocolError("SPDY headers are truncated")
            texts.append(raw[position - length : position].decode())
        return dict(zip(texts[::2], texts[1::2], strict=True))


def _number(payload: memoryview) -> int:
    """Return the number of the stream at the start of the payload."""
    (word,) = _U32.unpack_from(payload)
    return int(word) & 0x7FFFFFFF
