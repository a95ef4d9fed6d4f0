"""Test the conversion of SPDY frames to bytes and back."""

from __future__ import annotations

import hashlib
import struct

import pytest

from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.httpstream.spdy import framing
from pkg.apimachinery.util.httpstream.spdy.dictionary import HEADER_DICTIONARY

_HEADERS = {"streamtype": "stdin", "port": "8080"}


def frames(reader: spdy.Framer, data: bytes, step: int) -> list[spdy.Frame]:
    """Return the frames of bytes that arrive in pieces, with the parts of one data frame joined."""
    found: list[spdy.Frame] = []
    for at in range(0, len(data), step):
        for frame in reader.feed(data[at : at + step]):
            if isinstance(frame, spdy.Data):
                before = found[-1] if found else None
                joined = bytes(frame.data)
                if isinstance(before, spdy.Data) and before.stream_id == frame.stream_id:
                    joined = bytes(before.data) + joined
                    found.pop()
                frame = spdy.Data(frame.stream_id, memoryview(joined), frame.fin)
            found.append(frame)
    return found


@pytest.mark.parametrize("step", [1, 3, 7, 4096])
def test_frames_arrive_as_they_were_sent(step: int) -> None:
    writer = spdy.Framer()
    sent = b"".join(
        [
            writer.syn_stream(1, _HEADERS),
            writer.syn_stream(3, {"streamType": "error"}, fin=True),
            writer.syn_reply(1, {}),
            writer.data_head(1, 5) + b"hello",
            writer.data_head(3, 0, fin=True),
            writer.ping(7),
            writer.rst_stream(1, framing.RST_CANCEL),
            writer.go_away(3),
        ]
    )
    assert frames(spdy.Framer(), sent, step) == [
        spdy.SynStream(1, _HEADERS),
        spdy.SynStream(3, {"streamtype": "error"}, fin=True),
        spdy.SynReply(1, {}),
        spdy.Data(1, memoryview(b"hello")),
        spdy.Data(3, memoryview(b""), fin=True),
        spdy.Ping(7),
        spdy.RstStream(1, framing.RST_CANCEL),
        spdy.GoAway(3),
    ]


def test_the_end_of_a_stream_comes_with_its_last_part() -> None:
    sent = spdy.Framer.data_head(1, 6, fin=True) + b"abcdef"
    reader = spdy.Framer()
    parts = [
        (bytes(f.data), f.fin) for at in (0, 10) for f in reader.feed(sent[at : at + 10]) if isinstance(f, spdy.Data)
    ]
    assert parts == [(b"ab", False), (b"cdef", True)]


def test_what_nobody_uses_is_passed_over() -> None:
    def control(kind: int, payload: bytes) -> bytes:
        return struct.pack(">HHI", 0x8003, kind, len(payload)) + payload

    sent = control(4, bytes(4)) + control(9, bytes(8)) + spdy.Framer().ping(1)
    assert list(spdy.Framer().feed(sent)) == [spdy.Ping(1)]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">HHI", 0x8002, 1, 10) + bytes(10),  # This frame has another version.
        struct.pack(">HHI", 0x8003, 1, 1 << 21),  # This frame is larger than the limit.
        struct.pack(">HHI", 0x8003, 6, 2) + bytes(2),  # This frame is too short.
        struct.pack(">HHI", 0x8003, 2, 8) + bytes(4) + b"junk",  # The headers of this frame are not compressed.
        b"HTTP/1.1 400 Bad Request\r\n\r\n".replace(b"H", b"\x80", 1),
    ],
)
def test_what_is_not_spdy_is_refused(data: bytes) -> None:
    with pytest.raises(spdy.ProtocolError):
        list(spdy.Framer().feed(data))


def test_headers_that_unfold_without_end_are_refused() -> None:
    bomb = spdy.Framer().syn_stream(1, {"a": "x" * (2 << 20)})
    with pytest.raises(spdy.ProtocolError, match="too large"):
        list(spdy.Framer().feed(bomb))


def test_headers_whose_lengths_lie_are_refused() -> None:
    writer = spdy.Framer()
    block = writer._compress.compress(struct.pack(">II", 1, 1000) + b"a") + writer._compress.flush(2)
    with pytest.raises(spdy.ProtocolError, match="truncated"):
        list(spdy.Framer().feed(struct.pack(">HHII", 0x8003, 2, 4 + len(block), 1) + block))


def test_the_dictionary_is_that_of_the_protocol() -> None:
    assert len(HEADER_DICTIONARY) == 1423
    expected = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"
    assert hashlib.sha256(HEADER_DICTIONARY).hexdigest() == expected
