"""Wait for a condition until a deadline, and report what the test waited for and what it saw last.

Tests poll with these functions only where nothing reports a change. Otherwise they wait for a channel, an event, a
thread's end, or FakeClock.wait_for_waiters, which is better.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# TIMEOUT is the default deadline in seconds. It is long enough for a busy machine.
TIMEOUT = 30.0
# The pause between two calls, in seconds, begins with the shortest and doubles up to the longest. So a change after 1
# ms is seen after 1 ms, and a wait of a minute costs ten calls a second.
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.1


def wait_for(
    what: str, look: Callable[[], T], timeout: float = TIMEOUT, describe: Callable[[], object] | None = None
) -> T:
    """Call `look` until its result is true, and return that result. Raise AssertionError after `timeout` seconds."""
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
    """Call `look` until it returns the wanted value. Raise AssertionError with its last result after a timeout."""
    wait_for(f"{what}: {wanted!r}", lambda: look() == wanted, timeout, look)


def wait_for_end_of_threads(*prefixes: str, timeout: float = TIMEOUT) -> None:
    """Wait until no thread's name begins with one of these prefixes. Raise AssertionError with the remaining names."""
    deadline = time.monotonic() + timeout
    while (threads := threads_named(*prefixes)) and time.monotonic() < deadline:
        threads[0].join(deadline - time.monotonic())
    assert not threads, f"still running after {timeout:g} s: {sorted(thread.name for thread in threads)}"


def threads_named(*prefixes: str) -> list[threading.Thread]:
    """Return the running threads whose names begin with one of these prefixes."""
    return [thread for thread in threading.enumerate() if thread.name.startswith(prefixes)]
