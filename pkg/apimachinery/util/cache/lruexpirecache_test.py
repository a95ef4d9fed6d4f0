"""Test the cache whose entries expire."""

from __future__ import annotations

import datetime

from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util import cache

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_add_and_get() -> None:
    entries: cache.LRUExpireCache[int] = cache.LRUExpireCache(2)
    assert entries.get("a") is None
    entries.add("a", 1, 60.0)
    entries.add("a", 2, 60.0)
    assert (entries.get("a"), len(entries)) == (2, 1)


def test_least_recently_used_goes_first() -> None:
    entries: cache.LRUExpireCache[int] = cache.LRUExpireCache(2)
    entries.add("a", 1, 60.0)
    entries.add("b", 2, 60.0)
    assert entries.get("a") == 1
    entries.add("c", 3, 60.0)
    assert (entries.get("a"), entries.get("b"), entries.get("c")) == (1, None, 3)


def test_entries_expire() -> None:
    clock = FakeClock(START)
    entries: cache.LRUExpireCache[int] = cache.LRUExpireCache(9, clock)
    entries.add("short", 1, 1.0)
    entries.add("long", 2, 10.0)
    clock.step(2)
    assert (entries.get("short"), entries.get("long")) == (None, 2)
    assert len(entries) == 1
