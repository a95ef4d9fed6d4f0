"""Test how versions are parsed and ordered."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from pkg.apimachinery.util import version

ORDERED = [
    "0.0.1", "0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2",
    "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0",
]  # fmt: skip


def test_semantic_order() -> None:
    parsed = [version.parse_semantic(text) for text in ORDERED]
    for i, a in enumerate(parsed):
        for j, b in enumerate(ORDERED):
            assert a.compare(b) == (i > j) - (i < j), (str(a), b)
    assert (min(parsed), max(parsed)) == (parsed[0], parsed[-1])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [("1.4", "1.4.0", 0), ("1.4.1", "1.4", 1), ("1.4", "1.4.0.1", -1), ("v1.30.2-eks", "1.30.2", 0)],
)
def test_generic_order(a: str, b: str, expected: int) -> None:
    left, right = version.parse_generic(a), version.parse_generic(b)
    assert left.compare(b) == expected
    assert (left < right, left > right) == (expected < 0, expected > 0)
    assert (left == right) is (expected == 0)
    assert expected != 0 or hash(left) == hash(right)


def test_pre_release_does_not_count_against_a_generic_version() -> None:
    assert version.parse_semantic("1.30.0-alpha.1") >= version.parse_generic("1.30")


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (version.parse_semantic, " v1.2.3-rc.1+build.5 ", "1.2.3-rc.1+build.5"),
        (version.parse_generic, "1.2.3-rc.1", "1.2.3"),
        (version.parse_generic, "1.04.0.7 x", "1.4.0.7"),
        (version.parse_generic, "6.1.el8", "6.1"),
        (version.parse_generic, "1.30.x", "1.30"),
        (version.parse, "1.2.3-rc.1", "1.2.3-rc.1"),
        (version.parse, "1.2", "1.2"),
    ],
)
def test_parse(parse: Callable[[str], version.Version], text: str, expected: str) -> None:
    assert str(parse(text)) == expected


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (version.parse_semantic, "1.2"),
        (version.parse_semantic, "1.2.3.4"),
        (version.parse_semantic, "1.02.3"),
        (version.parse_semantic, "1.2.3-01"),
        (version.parse_semantic, "1.2.3-a..b"),
        (version.parse_semantic, "1.2.3-alpha.+b"),
        (version.parse_semantic, "1.2.3-alpha. "),
        (version.parse_semantic, "1.2.3 x"),
        (version.parse_generic, "1"),
        (version.parse_generic, "01.2"),
        (version.parse_generic, "version 1.2"),
        (version.parse, ""),
    ],
)
def test_parse_refuses(parse: Callable[[str], version.Version], text: str) -> None:
    with pytest.raises(ValueError, match=r"version"):
        parse(text)


def test_parts() -> None:
    parsed = version.parse("1.30.2")
    assert (parsed.major, parsed.minor, parsed.patch) == (1, 30, 2)


def test_long_versions_take_little_memory() -> None:
    text = "1" + ".1" * 100_000
    tracemalloc.start()
    try:
        assert version.parse_generic(text).minor == 1
        assert tracemalloc.get_traced_memory()[1] < 50 * len(text)
    finally:
        tracemalloc.stop()
