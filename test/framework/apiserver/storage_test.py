"""Test the storage alone."""

from __future__ import annotations

import pytest

from framework.apiserver.interfaces import Object
from framework.apiserver.storage import CompactedError, Storage


def _object(name: str, **fields: str) -> Object:
    return {"metadata": {"name": name}, **fields}


def test_one_version_counts_for_everything() -> None:
    storage = Storage()
    versions: list[int] = []
    for resource in ("pods", "nodes", "pods"):
        entry = storage.insert(resource, ("", f"{len(versions)}"), _object("x"))
        assert entry is not None
        versions.append(entry.version)
        assert entry.object["metadata"]["resourceVersion"] == str(entry.version)
    assert versions == [2, 3, 4] and storage.version == 4


def test_a_write_that_lost_the_race_is_refused() -> None:
    storage = Storage()
    first = storage.insert("pods", ("", "a"), _object("a"))
    assert first is not None
    assert storage.insert("pods", ("", "a"), _object("a")) is None
    assert storage.replace("pods", first, _object("a", x="1")) is not None
    assert storage.replace("pods", first, _object("a", x="2")) is None
    assert storage.remove("pods", first) is None


def test_the_past_can_be_listed() -> None:
    storage = Storage()
    a = storage.insert("pods", ("", "a"), _object("a"))
    b = storage.insert("pods", ("", "b"), _object("b"))
    assert a is not None and b is not None
    changed = storage.replace("pods", a, _object("a", x="1"))
    assert changed is not None
    storage.remove("pods", b)
    names = {
        version: [(entry.key[1], entry.object.get("x")) for entry in storage.entries("pods", version=version)[0]]
        for version in range(1, 6)
    }
    assert names == {
        1: [],
        2: [("a", None)],
        3: [("a", None), ("b", None)],
        4: [("a", "1"), ("b", None)],
        5: [("a", "1")],
    }


def test_history_ends_somewhere() -> None:
    storage = Storage(history=3)
    for i in range(5):
        storage.insert("pods", ("", f"{i}"), _object(f"{i}"))
    # Versions 2 and 3 have been forgotten. The versions after 3 are known.
    with pytest.raises(CompactedError):
        storage.watch("pods", 2)
    watcher = storage.watch("pods", 3)
    found = [watcher.next(0) for _ in range(3)]
    assert [change.version for change in found if change is not None] == [4, 5, 6]
    assert watcher.next(0) is None
    storage.compact()
    with pytest.raises(CompactedError):
        storage.watch("pods", 5)
    storage.watch("pods", 6).stop()


def test_a_watcher_is_caught_up_when_nothing_waits() -> None:
    storage = Storage()
    watcher = storage.watch("pods", None, namespace="n")
    storage.insert("pods", ("other", "a"), _object("a"))
    assert watcher.caught_up() == 2
    storage.insert("pods", ("n", "a"), _object("a"))
    assert watcher.caught_up() is None
    change = watcher.next(0)
    assert change is not None and change.version == 3
    assert watcher.caught_up() == 3
    watcher.stop()
    assert watcher.next(None) is None


def test_copies_are_the_callers_own() -> None:
    storage = Storage()
    entry = storage.insert("pods", ("", "a"), _object("a"))
    assert entry is not None
    entry.copy()["metadata"]["name"] = "changed"
    assert entry.object["metadata"]["name"] == "a"


def test_a_watch_may_wait_for_a_version_to_come() -> None:
    storage = Storage()
    watcher = storage.watch("pods", 3)
    for name in "abc":
        storage.insert("pods", ("", name), _object(name))
    change = watcher.next(0)
    assert change is not None and change.version == 4
