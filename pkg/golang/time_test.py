"""Test parsing times as Go parses them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pkg.golang.time import parse_rfc3339

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-02-29T01:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("2024-02-29T01:02:03+01:00", datetime(2024, 2, 29, 0, 2, 3, tzinfo=UTC)),
        ("2024-02-29T01:02:03.5-01:30", datetime(2024, 2, 29, 2, 32, 3, 500_000, UTC)),
        ("2024-02-29T1:02:03Z", datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
        ("2024-02-29T01:02:03,25Z", datetime(2024, 2, 29, 1, 2, 3, 250_000, UTC)),
        ("2024-02-29T01:02:03.123456999999Z", datetime(2024, 2, 29, 1, 2, 3, 123_456, UTC)),
        ("2024-02-29T01:02:03." + "9" * 10_000 + "Z", datetime(2024, 2, 29, 1, 2, 3, 999_999, UTC)),
        ("2024-02-29T00:00:00+24:60", datetime(2024, 2, 27, 23, tzinfo=UTC)),
        ("0000-02-29T00:00:00Z", FIRST),
        ("0001-01-01T00:00:00Z", FIRST),
        ("0001-01-01T00:00:00+10:00", FIRST),
        ("9999-12-31T23:59:59-10:00", LAST),
    ],
)
def test_parse_rfc3339(text: str, moment: datetime) -> None:
    assert parse_rfc3339(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01t00:00:00z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T24:00:00Z",
        "2023-02-29T00:00:00Z",
        "0001-02-30T00:00:00Z",
        "2024-01-01T00:00:00+25:00",
        "2024-01-01T00:00:00+00:61",
        "10000-01-01T00:00:00Z",
        "-001-01-01T00:00:00Z",
        "٢٠٢٤-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z\n",
        "9" * 100_000,
    ],
)
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="cannot parse") as caught:
        parse_rfc3339(text)
    assert len(str(caught.value)) < 300
