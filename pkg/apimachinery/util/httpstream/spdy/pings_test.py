"""Test how PING frames are found among others."""

from __future__ import annotations

import itertools

import pytest

from pkg.apimachinery.util.httpstream import spdy


def _conversation() -> list[bytes]:
    """Return the frames that one side sends."""
    framer = spdy.Framer()
    return [
        framer.syn_stream(1, {"streamtype": "stdin"}),
        framer.ping(1),
        # The data contains bytes that look like a ping, which must make no difference.
        framer.data_head(1, 112) + bytes(100) + framer.ping(5),
        framer.ping(3),
        framer.ping(7),
        framer.data_head(1, 0, fin=True),
        framer.rst_stream(1, 5),
        framer.ping(0xFFFFFFFF),
    ]


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 11, 12, 13, 50, 1000])
def test_pings_are_found_whatever_the_pieces(size: int, pieces: int) -> None:
    frames = _conversation()
    sent = b"".join(frames)
    ends = list(itertools.accumulate(map(len, frames)))
    ping_filter = spdy.PingFilter()
    held, given = 0, b""
    for i in range(0, len(sent), size):
        rest = memoryview(sent)[i : i + size]
        while rest:
            before, pings, rest = ping_filter.split(rest, pieces)
            given += before
            if pings:
                assert len(given) in ends, "they stand between two frames"
                assert len(pings) % 12 == 0, "each is given as a whole"
                held += len(pings)
            given += pings
    assert given == sent
    assert held >= 12, "the last one, at least"


def test_pings_before_other_frames_go_with_them() -> None:
    frames = _conversation()
    before, pings, rest = spdy.PingFilter().split(memoryview(b"".join(frames)), 1000)
    assert (before, pings, bytes(rest)) == (b"".join(frames[:-1]), frames[-1], b"")


def test_so_many_pieces_are_looked_at_and_no_more() -> None:
    empty, full = spdy.Framer.data_head(1, 0), spdy.Framer.data_head(1, 1) + b"x"
    ping = spdy.Framer().ping(1)
    ping_filter = spdy.PingFilter()
    assert ping_filter.split(memoryview(empty * 3), 2) == (empty * 2, b"", memoryview(empty))
    assert ping_filter.split(memoryview(full + empty), 2) == (full, b"", memoryview(empty))
    assert ping_filter.split(memoryview(ping * 2), 2) == (b"", ping, memoryview(ping))
