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


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 11, 12, 13, 50, 1000])
def test_pings_are_taken_out_whatever_the_pieces(size: int) -> None:
    sent, pings, others = _conversation()
    found = spdy.PingFilter()
    pieces = [found.split(sent[i : i + size]) for i in range(0, len(sent), size)]
    assert b"".join(piece[0] for piece in pieces) == pings
    assert all(len(piece[0]) % 12 == 0 for piece in pieces), "each ping is given as a whole"
    assert b"".join(piece[1] for piece in pieces) == others
