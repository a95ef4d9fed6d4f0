"""Test compressed responses; other tests are in pkg/client_go/rest/answers_test.py."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import Any

import pytest

from pkg.client_go.transport import body

LIMIT = 1 << 20


class Counting:
    """Replace zlib.decompressobj, and count the bytes that it receives."""

    def __init__(self) -> None:
        self.handed = self.calls = 0
        self._make = zlib.decompressobj

    def __call__(self, *args: Any) -> Any:
        member, counting = self._make(*args), self

        class Member:
            eof = property(lambda self: member.eof)
            unused_data = property(lambda self: member.unused_data)

            def decompress(self, data: bytes, max_length: int) -> bytes:
                counting.handed += len(data)
                counting.calls += 1
                return member.decompress(data, max_length)

        return Member()


def test_many_members_are_decompressed_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr(zlib, "decompressobj", counting)
    data = gzip.compress(b"") * 20_000
    assert body.decompress(data, LIMIT) == b""
    assert counting.handed < 300 * len(data)


def test_a_long_member_is_decompressed_in_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr(zlib, "decompressobj", counting)
    data = random.Random(0).randbytes(4 * LIMIT)
    assert body.decompress(gzip.compress(data), len(data)) == data
    assert counting.calls < 20


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 100_000, LIMIT])
def test_members_of_any_size(size: int) -> None:
    parts = [random.Random(size).randbytes(size), b"x", b"y" * (LIMIT - size - 1 if size < LIMIT else 0)]
    parts = parts[: 1 if size == LIMIT else 3]
    data = b"".join(map(gzip.compress, parts))
    assert body.decompress(data, LIMIT) == b"".join(parts)
    with pytest.raises(ValueError, match="longer than 1048576 bytes"):
        body.decompress(data + gzip.compress(b"z"), LIMIT)
    for end in (1, 9, len(gzip.compress(parts[-1])) - 1):
        with pytest.raises(EOFError):
            body.decompress(data[:-end], LIMIT)
    with pytest.raises(zlib.error):
        body.decompress(data + b"no gzip", LIMIT)
