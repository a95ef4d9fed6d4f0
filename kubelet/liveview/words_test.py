"""Test the wording of durations."""

from __future__ import annotations

import pytest

from kubelet.liveview.words import spoken


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12 ms"),
        (1, "1 s"),
        (2.34, "2.3 s"),
        (59.4, "59 s"),
        (60, "1 min"),
        (90, "1 min 30 s"),
        (3700, "1 h 1 min"),
        (90000, "1 d 1 h"),
    ],
)
def test_spoken(seconds: float, text: str) -> None:
    assert spoken(seconds) == text
