"""Test how PEM data is parsed."""

from __future__ import annotations

import pytest

from pkg.client_go.util.keyutil import pem

BLOCK = b"-----BEGIN X-----\nAAEC\n-----END X-----\n"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (BLOCK, [b"\x00\x01\x02"]),
        (b"caf\xe9\n" + BLOCK + b"\xff" + b"\n" + BLOCK, [b"\x00\x01\x02"] * 2),
        (BLOCK.replace(b"\n", b" \t\r\n"), [b"\x00\x01\x02"]),
        (b"-----BEGIN X-----\na: b\nc: d\n\nAAEC\n-----END X-----\n", [b"\x00\x01\x02"]),
        (b"-----BEGIN X-----\nAAEC\n" + BLOCK, [b"\x00\x01\x02"]),
        (b"-----BEGIN X-----\nA\xe9EC\n-----END X-----\n" + BLOCK, [b"\x00\x01\x02"]),
        (b"-----BEGIN X-----\n-----END X-----\n" + BLOCK, [b"", b"\x00\x01\x02"]),
        (b"-----BEGIN X-----\na: b\n-----END X-----\n" + BLOCK, [b"", b"\x00\x01\x02"]),
        (b"-----BEGIN Y-----\nAAEC\n-----END X-----\n", []),
        (b"", []),
    ],
)
def test_blocks(data: bytes, found: list[bytes]) -> None:
    assert [block.data for block in pem.blocks(data)] == found


@pytest.mark.parametrize(
    "part",
    [b"-----BEGIN a:-----\n", b"-----BEGIN X-----\na: b\n", b"-----BEGIN X-----\nAAEC\n", b"-----BEGIN X-----\n\n\n"],
)
def test_a_mebibyte_of_beginnings_takes_no_time(part: bytes) -> None:
    """A mebibyte of block starts is parsed in linear time; with quadratic time this test would take hours."""
    assert list(pem.blocks(part * ((1 << 20) // len(part)))) == []
