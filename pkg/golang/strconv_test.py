"""Test parsing numbers as Go parses them."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from pkg.golang import strconv


@pytest.mark.parametrize(
    ("text", "base", "value"),
    [
        ("0", 10, 0),
        ("-0", 10, 0),
        ("+7", 10, 7),
        ("007", 10, 7),
        ("0" * 10_000 + "7", 10, 7),
        ("-9223372036854775808", 10, -(2**63)),
        ("9223372036854775807", 10, 2**63 - 1),
        ("0x1f", 0, 31),
        ("-0X1F", 0, -31),
        ("0b11", 0, 3),
        ("0o17", 0, 15),
        ("017", 0, 15),
        ("1_000", 0, 1000),
        ("0x_1f", 0, 31),
        ("0_17", 0, 15),
        ("0b" + "1" * 63, 0, 2**63 - 1),
    ],
)
def test_parse_int(text: str, base: int, value: int) -> None:
    assert strconv.parse_int(text, base) == value


@pytest.mark.parametrize("base", [0, 10])
@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1\n", "١", "²", "1.0", "1e3", "--1", "x", "\ud800", "0x"])
def test_no_int(text: str, base: int) -> None:
    with pytest.raises(strconv.NumError, match=r"^strconv\.ParseInt: parsing .*: invalid syntax"):
        strconv.parse_int(text, base)


@pytest.mark.parametrize("text", ["1__0", "_1", "1_", "08", "0b2", "0o8"])
def test_no_int_of_base_0(text: str) -> None:
    with pytest.raises(strconv.NumError, match="invalid syntax"):
        strconv.parse_int(text, 0)


@pytest.mark.parametrize(("text", "bits"), [("9223372036854775808", 64), ("-2147483649", 32), ("9" * 10_000, 64)])
def test_int_out_of_range(text: str, bits: int) -> None:
    with pytest.raises(strconv.NumError, match=r"^strconv\.ParseInt: parsing .*: value out of range") as caught:
        strconv.parse_int(text, bits=bits)
    assert len(str(caught.value)) < 200


def test_parse_uint() -> None:
    assert strconv.parse_uint("18446744073709551615") == 2**64 - 1
    for text in ("18446744073709551616", "-1", "+1", "1_0", "9" * 10_000):
        with pytest.raises(strconv.NumError):
            strconv.parse_uint(text)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), ("-1.5e3", -1500.0), (".5", 0.5), ("1.", 1.0), ("Inf", math.inf)]
)
def test_parse_float(text: str, value: float) -> None:
    assert strconv.parse_float(text) == value
    assert math.isnan(strconv.parse_float("NaN"))


@pytest.mark.parametrize("text", ["", ".", "1_0", " 1", "1e", "1e999", "-1e999", "١", "0x1p-2x"])
def test_no_float(text: str) -> None:
    with pytest.raises(strconv.NumError):
        strconv.parse_float(text)


@pytest.mark.parametrize("text", ["1" * 200_000, "0x" + "1" * 200_000, "1_" * 100_000 + "1"])
def test_long_numbers_take_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(strconv.NumError):
            strconv.parse_int(text, 0)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()
