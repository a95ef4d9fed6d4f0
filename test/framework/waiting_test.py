from __future__ import annotations

import itertools
import threading

import pytest

from framework.waiting import threads_named, wait_for, wait_for_end_of_threads, wait_until_equal
from pkg import golang


def test_what_is_found_is_returned() -> None:
    looks = iter([0, "", "found"])
    assert wait_for("a find", lambda: next(looks)) == "found"


def test_what_does_not_come_about_is_told() -> None:
    with pytest.raises(AssertionError, match=r"not within 0.01 s: a miracle$"):
        wait_for("a miracle", lambda: False, 0.01)
    with pytest.raises(AssertionError, match=r"not within 0.01 s: a miracle; last seen: water"):
        wait_for("a miracle", lambda: False, 0.01, lambda: "water")


def test_what_is_to_be_equal() -> None:
    counted = itertools.count()
    wait_until_equal("rounds", lambda: next(counted), 3)
    assert next(counted) == 4
    with pytest.raises(AssertionError, match=r"not within 0.01 s: rounds: 3; last seen: 2"):
        wait_until_equal("rounds", lambda: 2, 3, 0.01)


def test_end_of_threads() -> None:
    held, free = threading.Event(), threading.Event()
    waits = golang.go(held.wait, name="waits-long")
    ends = golang.go(free.wait, name="ends-soon")
    try:
        free.set()
        wait_for_end_of_threads("ends-", "is-not-there-")
        assert not ends.is_alive() and threads_named("waits-", "ends-") == [waits]
        with pytest.raises(AssertionError, match=r"still running after 0.01 s: \['waits-long'\]"):
            wait_for_end_of_threads("waits-", timeout=0.01)
    finally:
        held.set()
    wait_for_end_of_threads("waits-")
