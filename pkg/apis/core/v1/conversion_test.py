from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from pkg.api.core import v1
from pkg.apis.core.v1 import conversion


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({}, {}),
        ({"unknown": ["x"], "container": ["c", "d"]}, {"container": "c"}),
        (
            {"follow": ["true"], "previous": ["1"], "timestamps": [""]},
            {"follow": True, "previous": True, "timestamps": True},
        ),
        ({"follow": ["FALSE"], "previous": ["0"], "timestamps": []}, {}),
        (
            {"tailLines": ["100"], "limitBytes": ["+5"], "sinceSeconds": ["-1"]},
            {"tail_lines": 100, "limit_bytes": 5, "since_seconds": -1},
        ),
        ({"tailLines": ["9223372036854775807"]}, {"tail_lines": 2**63 - 1}),
        ({"sinceTime": ["2026-01-02T05:04:05.25+02:00"]}, {"since_time": datetime(2026, 1, 2, 3, 4, 5, 250000, UTC)}),
        ({"sinceTime": ["2026-01-02T03:04:05.123456789Z"]}, {"since_time": datetime(2026, 1, 2, 3, 4, 5, 123456, UTC)}),
        ({"sinceTime": [""]}, {"since_time": datetime(1, 1, 1, tzinfo=UTC)}),
        ({"sinceTime": ["0000-01-02T03:04:05Z"]}, {"since_time": datetime(1, 1, 1, tzinfo=UTC)}),
        ({"stream": ["Stderr"]}, {"stream": "Stderr"}),
    ],
)
def test_pod_log_options(query: dict[str, list[str]], options: dict[str, Any]) -> None:
    assert conversion.convert_url_values_to_pod_log_options(query) == v1.PodLogOptions(**options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tailLines", "a"),
        ("tailLines", ""),
        ("tailLines", "1.5"),
        ("tailLines", "1_0"),
        ("tailLines", "\u0661"),
        ("tailLines", "9223372036854775808"),
        ("limitBytes", "-9223372036854775809"),
        ("sinceSeconds", "9" * 5000),
        ("sinceTime", "yesterday"),
        ("sinceTime", "2026-01-02"),
        ("sinceTime", "2026-01-02 03:04:05Z"),
        ("sinceTime", "2026-13-02T03:04:05Z"),
    ],
)
def test_bad_pod_log_options(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        conversion.convert_url_values_to_pod_log_options({name: [value]})
