"""Test RealFIFO: the order of its deltas, its batches, and when it counts as synced."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from pkg import golang
from pkg.client_go.tools import cache
from pkg.client_go.tools.cache import DeletedFinalStateUnknown as Gone
from pkg.client_go.tools.cache import DeltaType, RealFIFO, ReplacedAllInfo

WAIT = 30.0
ADDED, UPDATED, DELETED, REPLACED, REPLACED_ALL, SYNC, SYNC_ALL = DeltaType

Obj = tuple[str, int]
Operation = Callable[[RealFIFO], object]


def key_func(obj: Obj) -> str:
    return obj[0]


def known(*objs: Obj) -> cache.Store[Any]:
    store = cache.new_store(key_func)
    store.replace(objs, "0")
    return store


def new_fifo(*known_objects: Obj, atomic_events: bool = False, unlock_while_processing: bool = False) -> RealFIFO:
    return RealFIFO(known(*known_objects), key_func, atomic_events, unlock_while_processing)


def ignore(deltas: cache.Deltas, is_initial: bool) -> None:
    pass


def pop(fifo: RealFIFO) -> tuple[DeltaType, Any]:
    (delta,) = fifo.pop(ignore)
    return delta.type, delta.object


def pop_all(fifo: RealFIFO) -> list[tuple[DeltaType, Any]]:
    """Return everything that is queued."""
    fifo.close()
    popped = []
    while True:
        try:
            popped.append(pop(fifo))
        except cache.FIFOClosedError:
            return popped


def pop_batches(fifo: RealFIFO) -> list[list[Any]]:
    """Return the objects of everything that is queued, as it is processed.

    The text "single" precedes what is processed singly.
    """
    fifo.close()
    popped: list[list[Any]] = []
    while True:
        try:
            fifo.pop_batch(
                lambda deltas, initial: popped.append([delta.object for delta in deltas]),
                lambda deltas, initial: popped.append(["single", *(delta.object for delta in deltas)]),
            )
        except cache.FIFOClosedError:
            return popped


def do(*operations: tuple[str, Any]) -> Operation:
    def run(fifo: RealFIFO) -> None:
        for name, argument in operations:
            getattr(fifo, name)(*([argument, "0"] if name == "replace" else [argument]))

    return run


def test_all_comes_out_in_the_order_of_what_happened() -> None:
    fifo = new_fifo()
    fifo.add(("a", 1))
    fifo.add(("b", 1))
    fifo.update(("a", 2))
    fifo.delete(("b", 1))
    fifo.add(("b", 2))
    assert pop_all(fifo) == [
        (ADDED, ("a", 1)),
        (ADDED, ("b", 1)),
        (UPDATED, ("a", 2)),
        (DELETED, ("b", 1)),
        (ADDED, ("b", 2)),
    ]


def test_a_list_and_a_resync_are_one_delta_each() -> None:
    fifo = new_fifo(("known", 1), atomic_events=True)
    fifo.add(("a", 1))
    fifo.replace(iter([("b", 1), ("c", 1)]), "7")
    fifo.resync()
    assert pop_all(fifo) == [
        (ADDED, ("a", 1)),
        (REPLACED_ALL, ReplacedAllInfo("7", [("b", 1), ("c", 1)])),
        (SYNC_ALL, None),
    ]


FOO2, FOO3 = ("foo", 2), ("foo", 3)
KNOWN = [("foo", 5), ("bar", 6), ("baz", 7)]
FOO5 = ("foo", 5)


@pytest.mark.parametrize(
    ("known_objects", "operations", "expected"),
    [
        pytest.param([], do(("add", FOO2), ("replace", [])), [(ADDED, FOO2), (DELETED, Gone("foo", FOO2))], id="added"),
        pytest.param(
            [],
            do(("replace", [FOO2]), ("replace", [])),
            [(REPLACED, FOO2), (DELETED, Gone("foo", FOO2))],
            id="listed before",
        ),
        pytest.param(
            [],
            do(("add", FOO2), ("delete", FOO2), ("replace", [])),
            [(ADDED, FOO2), (DELETED, FOO2)],
            id="its deletion is queued",
        ),
        pytest.param(
            [],
            do(("add", FOO2), ("delete", FOO2), ("add", FOO3), ("replace", [])),
            [(ADDED, FOO2), (DELETED, FOO2), (ADDED, FOO3), (DELETED, Gone("foo", FOO3))],
            id="added again",
        ),
        pytest.param(
            KNOWN,
            do(("delete", ("baz", 10)), ("replace", [FOO5])),
            [(DELETED, ("baz", 10)), (DELETED, Gone("bar", ("bar", 6))), (REPLACED, FOO5)],
            id="one known, one whose deletion is queued",
        ),
        pytest.param(
            KNOWN,
            do(("add", ("baz", 10)), ("replace", [FOO5])),
            [
                (ADDED, ("baz", 10)),
                (DELETED, Gone("baz", ("baz", 10))),
                (DELETED, Gone("bar", ("bar", 6))),
                (REPLACED, FOO5),
            ],
            id="the queue knows better than the store",
        ),
        pytest.param(
            KNOWN,
            do(("replace", [("bar", 100), FOO5]), ("replace", [FOO5])),
            [
                (DELETED, Gone("baz", ("baz", 7))),
                (REPLACED, ("bar", 100)),
                (REPLACED, FOO5),
                (DELETED, Gone("bar", ("bar", 100))),
                (REPLACED, FOO5),
            ],
            id="replaced twice",
        ),
    ],
)
def test_what_a_list_lacks_is_deleted(
    known_objects: list[Obj], operations: Operation, expected: list[tuple[DeltaType, Any]]
) -> None:
    fifo = new_fifo(*known_objects)
    operations(fifo)
    assert pop_all(fifo) == expected


class VanishingStore:
    """Represent a store that lists a key but lacks its object."""

    def list_keys(self) -> list[str]:
        return ["foo"]

    def get_by_key(self, key: str) -> None:
        return None


def test_what_is_known_no_longer(log: io.StringIO) -> None:
    fifo = RealFIFO(VanishingStore(), key_func)
    fifo.resync()
    fifo.replace([], "0")
    assert pop_all(fifo) == [(DELETED, Gone("foo", None))]
    assert log.getvalue().count("Key does not exist in known objects store") == 2


def test_resync_leaves_alone_what_is_queued() -> None:
    fifo = new_fifo(("foo", 5), ("bar", 1))
    fifo.update(("foo", 6))
    fifo.resync()
    assert pop_all(fifo) == [(UPDATED, ("foo", 6)), (SYNC, ("bar", 1))]


@pytest.mark.parametrize(("obj", "key"), [(("A", 1), "A"), (Gone("B", None), "B")])
def test_key_of(obj: Any, key: str) -> None:
    assert new_fifo().key_of(obj) == key


def test_what_has_no_key_is_refused() -> None:
    fifo = RealFIFO(known())
    with pytest.raises(cache.ObjectKeyError, match="object has no meta"):
        fifo.add("what")
    assert pop_all(fifo) == []


def test_unlocking_needs_atomic_events() -> None:
    with pytest.raises(ValueError, match="unlock_while_processing"):
        new_fifo(unlock_while_processing=True)


A, B, C = ("a", 1), ("b", 2), ("c", 3)


@pytest.mark.parametrize(
    ("atomic_events", "operations", "pops", "synced"),
    [
        pytest.param(False, do(), 0, False, id="nothing came"),
        pytest.param(False, do(("add", A)), 0, True, id="a change came first"),
        pytest.param(False, do(("delete", A)), 0, True, id="a deletion came first"),
        pytest.param(False, do(("replace", [])), 0, True, id="an empty list"),
        pytest.param(False, do(("replace", [A, B])), 0, False, id="a list"),
        pytest.param(False, do(("replace", [A, B])), 1, False, id="half of it taken"),
        pytest.param(False, do(("replace", [A, B])), 2, True, id="all of it"),
        pytest.param(False, do(("replace", [A]), ("add", B)), 1, True, id="what came later does not count"),
        pytest.param(True, do(("replace", [])), 0, False, id="atomic: an empty list"),
        pytest.param(True, do(("replace", [A, B])), 0, False, id="atomic: a list"),
        pytest.param(True, do(("replace", [A, B]), ("add", C)), 1, True, id="atomic: all of it"),
    ],
)
def test_has_synced(atomic_events: bool, operations: Operation, pops: int, synced: bool) -> None:
    fifo = new_fifo(atomic_events=atomic_events)
    operations(fifo)
    for _ in range(pops):
        pop(fifo)
    assert fifo.has_synced() == synced
    assert fifo.done().try_recv()[2] == synced


def test_deletions_count_for_the_sync() -> None:
    fifo = new_fifo(*KNOWN)
    fifo.replace([FOO5], "0")
    initial: list[bool] = []
    for _ in range(3):
        assert not fifo.has_synced()
        fifo.pop(lambda deltas, is_initial: initial.append(is_initial))
    assert fifo.has_synced()
    fifo.add(("foo", 6))
    fifo.pop(lambda deltas, is_initial: initial.append(is_initial))
    assert initial == [True, True, True, False]


def test_synced_only_after_the_last_is_processed() -> None:
    fifo = new_fifo(atomic_events=True, unlock_while_processing=True)
    fifo.replace([A], "0")
    during: list[bool] = []
    fifo.pop(lambda deltas, is_initial: during.append(fifo.has_synced()))
    assert during == [False] and fifo.has_synced()


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param(do(("add", A), ("update", B), ("delete", C)), [[A, B, C]], id="different objects"),
        pytest.param(do(("add", A), ("add", B), ("update", A), ("delete", B)), [[A, B], [A, B]], id="one object again"),
        pytest.param(do(("add", A), ("update", A)), [["single", A], ["single", A]], id="one object only"),
        pytest.param(
            do(("add", A), ("add", B), ("replace", [C]), ("add", B), ("add", C)),
            [[A, B], ["single", ReplacedAllInfo("0", [C])], [B, C]],
            id="a list is by itself",
        ),
        pytest.param(
            do(*(("add", (name, 1)) for name in "abcdefg")),
            [[(name, 1) for name in "abcd"], [(name, 1) for name in "efg"]],
            id="more than a batch",
        ),
    ],
)
def test_batches(operations: Operation, expected: list[list[Any]]) -> None:
    fifo = new_fifo(atomic_events=True)
    fifo._batch_size = 4
    operations(fifo)
    assert pop_batches(fifo) == expected


def test_no_batch_has_more_than_the_first_list() -> None:
    fifo = new_fifo()
    fifo.replace([A, B], "0")
    fifo.add(C)
    fifo.close()
    initial: list[bool] = []
    for _ in range(2):
        fifo.pop_batch(lambda deltas, first: initial.append(first), lambda deltas, first: initial.append(first))
    assert initial == [True, False]


@pytest.mark.parametrize(
    ("unlock_while_processing", "others", "locked"),
    [(False, 0, True), (True, 0, False), (True, 1, False), (True, 2, True)],
    ids=["always", "never", "few wait", "two batches wait"],
)
def test_who_fills_the_queue_waits_while_too_much_is_queued(
    unlock_while_processing: bool, others: int, locked: bool
) -> None:
    fifo = new_fifo(atomic_events=True, unlock_while_processing=unlock_while_processing)
    fifo._batch_size = 1
    for i in range(1 + others):
        fifo.add((f"p{i}", 1))
    during: list[bool] = []
    fifo.pop(lambda deltas, is_initial: during.append(fifo._lock.locked()))
    assert during == [locked] and not fifo._lock.locked()


def test_what_comes_while_another_is_processed() -> None:
    fifo = new_fifo(atomic_events=True, unlock_while_processing=True)
    fifo.add(A)
    fifo.pop(lambda deltas, is_initial: fifo.add(B))
    assert pop_all(fifo) == [(ADDED, B)]


def test_what_fails_to_be_processed_is_gone() -> None:
    fifo = new_fifo()
    fifo.replace([A, B], "0")

    def fail(deltas: cache.Deltas, is_initial: bool) -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fifo.pop(fail)
    assert pop(fifo) == (REPLACED, B)
    assert fifo.has_synced()


def test_what_there_is_no_memory_for_stays_first() -> None:
    fifo = new_fifo(atomic_events=True, unlock_while_processing=True)
    fifo.replace([A], "0")
    fifo.add(B)

    def fail(deltas: cache.Deltas, is_initial: bool) -> None:
        raise MemoryError

    for _ in range(2):
        with pytest.raises(MemoryError):
            fifo.pop_batch(fail, fail)
    assert not fifo.has_synced()
    assert pop_all(fifo) == [(REPLACED_ALL, ReplacedAllInfo("0", [A])), (ADDED, B)]


def test_of_a_batch_only_what_there_is_no_memory_for_stays() -> None:
    fifo = new_fifo()
    fifo.replace([A, B, C], "0")

    def fail(deltas: cache.Deltas, is_initial: bool) -> None:
        raise cache.TransactionError(len(deltas), {0: ValueError("bad"), 1: MemoryError("no room")})

    with pytest.raises(MemoryError, match="no room"):
        fifo.pop_batch(fail, ignore)
    assert not fifo.has_synced()
    assert pop(fifo) == (REPLACED, B)
    assert fifo.has_synced()


def test_what_fails_of_a_batch_is_gone() -> None:
    fifo = new_fifo()
    fifo.replace([A, B], "0")

    def fail(deltas: cache.Deltas, is_initial: bool) -> None:
        raise cache.TransactionError(len(deltas), {0: ValueError("bad")})

    with pytest.raises(cache.TransactionError, match=r"failed to execute \(1/2\) transactions failed due to: \[bad\]"):
        fifo.pop_batch(fail, ignore)
    assert fifo.has_synced() and pop_all(fifo) == []


def test_pop_waits_and_ends_when_closed() -> None:
    fifo = new_fifo()
    popped: golang.Channel[Any] = golang.Channel(2)

    def drain() -> None:
        popped.send(pop(fifo))
        try:
            fifo.pop_batch(ignore, ignore)
        except cache.FIFOClosedError as err:
            popped.send(err)

    thread = golang.go(drain, name="pop")
    fifo.add(A)
    assert popped.recv(WAIT) == ((ADDED, A), True)
    fifo.close()
    assert isinstance(popped.recv(WAIT)[0], cache.FIFOClosedError)
    assert fifo.is_closed()
    thread.join(WAIT)


def test_pop_ends_with_its_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    ended: golang.Channel[bool] = golang.Channel(1)

    def drain() -> None:
        with pytest.raises(golang.Canceled):
            new_fifo().pop(ignore, ctx)
        with pytest.raises(golang.Canceled):
            new_fifo().pop_batch(ignore, ignore, ctx)
        ended.send(True)

    thread = golang.go(drain, name="pop")
    cancel()
    assert ended.recv(WAIT)[1]
    thread.join(WAIT)


def test_get_by_key_is_the_newest() -> None:
    fifo = new_fifo(("known", 1), atomic_events=True)
    fifo.add(("queued", 1))
    fifo.update(("queued", 2))
    fifo.resync()
    assert fifo.get_by_key("known") == ("known", 1)
    assert fifo.get_by_key("queued") == ("queued", 2)
    fifo.delete(("known", 1))
    assert fifo.get_by_key("known") is None
    assert fifo.get_by_key("neither") is None
    fifo.replace([("known", 3)], "0")
    assert fifo.get_by_key("known") == ("known", 3)
    assert fifo.get_by_key("queued") is None


def test_get_by_key_while_it_is_processed() -> None:
    fifo = new_fifo(atomic_events=True, unlock_while_processing=True)
    fifo.add(A)
    found: list[Any] = []
    fifo.pop(lambda deltas, is_initial: found.append(fifo.get_by_key("a")))
    assert found == [A]
