"""Waiting for a condition, with a deadline and with a message that says what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PERIOD = 0.1


def wait_for(what: str, look: Callable[[], T], timeout: float, describe: Callable[[], object] | None = None) -> T:
    """Call look until what it returns is true and return that; AssertionError after timeout seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            seen = "" if describe is None else f"; last seen: {describe()}"
            raise AssertionError(f"not within {timeout:g} s: {what}{seen}")
        time.sleep(PERIOD)
