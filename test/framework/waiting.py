"""Waiting for a condition, with a deadline and with a message that says what was waited for and what was seen last.

All tests wait with this where nothing tells them of a change. What does is better waited for: a channel, an event, a
thread's end, or FakeClock.wait_for_waiters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds. It is long enough for a machine on which much else is done.
TIMEOUT = 30.0
# Seconds between the first looks, which double up to the longest. What takes 1 ms is seen after 1 ms, and what takes a
# minute costs ten looks a second.
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1


def wait_for(
    what: str, look: Callable[[], T], timeout: float = TIMEOUT, describe: Callable[[], object] | None = None
) -> T:
    """Call look until what it returns is true and return that; AssertionError after timeout seconds."""
    deadline = time.monotonic() + timeout
    pause = _SHORTEST_PAUSE
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            seen = "" if describe is None else f"; last seen: {describe()}"
            raise AssertionError(f"not within {timeout:g} s: {what}{seen}")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def wait_until_equal(what: str, look: Callable[[], T], wanted: T, timeout: float = TIMEOUT) -> None:
    """Call look until it returns what is wanted; AssertionError with what it returned last after timeout seconds."""
    wait_for(f"{what}: {wanted!r}", lambda: look() == wanted, timeout, look)


def wait_for_end_of_threads(*prefixes: str, timeout: float = TIMEOUT) -> None:
    """Return once no thread's name begins with one of these; AssertionError with the names of those that still run."""
    deadline = time.monotonic() + timeout
    while (threads := threads_named(*prefixes)) and time.monotonic() < deadline:
        threads[0].join(deadline - time.monotonic())
    assert not threads, f"still running after {timeout:g} s: {sorted(thread.name for thread in threads)}"


def threads_named(*prefixes: str) -> list[threading.Thread]:
    """The threads that run whose names begin with one of these."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefixes)]
