"""PING frames among others."""

from __future__ import annotations

import pytest

from pkg.apimachinery.util.httpstream import spdy


def _conversation() -> tuple[bytes, bytes, bytes]:
    """What a side sends, and of that the pings and the rest."""
    framer = spdy.Framer()
    pings = [framer.ping(ping_id) for ping_id in (1, 3, 0xFFFFFFFF)]
    others = [
        framer.syn_stream(1, {"streamtype": "stdin"}),
        # That there is a ping in the data makes no difference.
        framer.data_head(1, 112) + bytes(100) + framer.ping(5),
        framer.data_head(1, 0, fin=True) + framer.rst_stream(1, 5),
    ]
    sent = b"".join(part for pair in zip(others, pings, strict=True) for part in pair)
    return sent, b"".join(pings), b"".join(others)


@pytest.mark.parametrize("pieces", [1, 2, 1000])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 11, 12, 13, 50, 1000])
def test_pings_are_taken_out_whatever_the_pieces(size: int, pieces: int) -> None:
    sent, pings, others = _conversation()
    ping_filter = spdy.PingFilter()
    found: list[tuple[bytes, bytes]] = []
    for i in range(0, len(sent), size):
        rest = memoryview(sent)[i : i + size]
        while rest:
            *both, rest = ping_filter.split(rest, pieces)
            found.append((both[0], both[1]))
    assert b"".join(each[0] for each in found) == pings
    assert all(len(each[0]) % 12 == 0 for each in found), "each ping is given as a whole"
    assert b"".join(each[1] for each in found) == others


def test_so_many_pieces_are_looked_at_and_no_more() -> None:
    empty, full = spdy.Framer.data_head(1, 0), spdy.Framer.data_head(1, 1) + b"x"
    ping = spdy.Framer().ping(1)
    ping_filter = spdy.PingFilter()
    assert ping_filter.split(memoryview(empty * 3), 2) == (b"", empty * 2, memoryview(empty))
    assert ping_filter.split(memoryview(full + empty), 2) == (b"", full, memoryview(empty))
    assert ping_filter.split(memoryview(ping * 2), 2) == (ping, b"", memoryview(ping))
