"""Test how much of a head is parsed."""

from __future__ import annotations

import pytest

from pkg.golang.http import head


def request(*fields: tuple[str, str]) -> bytes:
    lines = ["GET / HTTP/1.1", "Host: a", *(f"{name}: {value}" for name, value in fields)]
    return "\r\n".join([*lines, "", ""]).encode()


@pytest.mark.parametrize(
    "data",
    [request(("X", "a\r\n b")), request().replace(b"GET", b"G" * 65, 1)],
    ids=["a field of two lines", "a long method"],
)
def test_heads_that_go_takes_are_refused(data: bytes) -> None:
    with pytest.raises(head.MalformedError) as refused:
        head.parse_head(data)
    assert refused.value.status == 400


@pytest.mark.parametrize("name", ["Accept", "accept-encoding", "Connection", "Expect", "Sec-WebSocket-Protocol"])
def test_a_list_is_not_longer_than_anybody_s(name: str) -> None:
    half = ("aa," * head.MAX_LIST_BYTES)[: head.MAX_LIST_BYTES // 2]
    assert head.parse_head(request((name, half), (name, half))).keeps_alive
    with pytest.raises(head.MalformedError) as refused:
        head.parse_head(request((name, half), (name, f"{half},")))
    assert refused.value.status == 431
