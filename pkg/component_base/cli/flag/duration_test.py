"""Test durations in Go's notation.

Go: time/time_test.go (TestParseDuration, TestDurationString)
"""

from __future__ import annotations

import pytest

from pkg.component_base.cli.flag import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("5s", 5.0),
        ("-5s", -5.0),
        ("+5s", 5.0),
        ("5.6s", 5.6),
        ("5.s", 5.0),
        (".5s", 0.5),
        ("1h1m1s1ms1us1ns", 3661.001001001),
        ("100ms", 0.1),
        ("12µs", 12e-6),
        ("1m30s", 90.0),
        ("39h9m14.425s", 140954.425),
    ],
)
def test_parse(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("3", 'time: missing unit in duration "3"'),
        ("-", 'time: invalid duration "-"'),
        ("s", 'time: invalid duration "s"'),
        ("\u0661s", 'time: invalid duration "\u0661s"'),
        ("9" * 400 + "h", f'time: invalid duration "{"9" * 400}h"'),
        (".s", 'time: invalid duration ".s"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("1m30", 'time: missing unit in duration "1m30"'),
        (" 1s", 'time: invalid duration " 1s"'),
        ("3000000h", 'time: invalid duration "3000000h"'),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (1e-9, "1ns"),
        (1.1e-6, "1.1µs"),
        (0.0022, "2.2ms"),
        (3.3, "3.3s"),
        (245.0, "4m5s"),
        (305.001, "5m5.001s"),
        (18367.0, "5h6m7s"),
        (60.0, "1m0s"),
        (-1.5, "-1.5s"),
        (14400.0, "4h0m0s"),
    ],
)
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds
