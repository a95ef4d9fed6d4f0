"""Test the check of clocks: the reported faults, and the accepted code."""

from __future__ import annotations

import pytest
from framework.scripts import load_script

verify_clocks = load_script("verify_clocks")


@pytest.mark.parametrize(
    "line",
    [
        "return self.clock.now() - begin",
        "return begin - self._clock.now()",
        "return clock.since(begin)",
        "return self.clock.now() > self.until",
        "return (datetime.now(UTC) - begin).total_seconds()",
        "now = clock.now(); return now >= self.until",
    ],
)
def test_durations_by_the_time_of_day_are_found(line: str) -> None:
    assert verify_clocks.faults(f"def f():\n    {line}\n") == [2]
    assert verify_clocks.faults(f"def f():\n    # time of day: a file has it.\n    {line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "return self.clock.steady() - begin",
        "return self.clock.monotonic() > self.until",
        "return Event(at=self.clock.now())",
        "return self.clock.now() > certificate.not_after",
        "return queue.now",
    ],
)
def test_other_uses_of_clocks_pass(line: str) -> None:
    assert verify_clocks.faults(f"def f():\n    {line}\n") == []
