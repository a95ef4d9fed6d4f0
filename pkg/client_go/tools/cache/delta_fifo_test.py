"""DeltaFIFO: what comes out for what went in, and when it counts as synced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pkg import golang
from pkg.client_go.tools import cache
from pkg.client_go.tools.cache import DeletedFinalStateUnknown as Gone
from pkg.client_go.tools.cache import Delta, DeltaFIFO, DeltaType

WAIT = 30.0
ADDED, UPDATED, DELETED, REPLACED, SYNC = DeltaType

Obj = tuple[str, int]
Operation = Callable[[DeltaFIFO], object]


def key_func(obj: Obj) -> str:
    return obj[0]


def known(*objs: Obj) -> cache.Store[Any]:
    store = cache.new_store(key_func)
    store.replace(objs, "0")
    return store


def pop(fifo: DeltaFIFO) -> list[tuple[DeltaType, Any]]:
    return [(delta.type, delta.object) for delta in fifo.pop(lambda deltas, initial: None)]


def pop_all(fifo: DeltaFIFO) -> list[list[tuple[DeltaType, Any]]]:
    """Everything that is queued."""
    fifo.close()
    popped = []
    while True:
        try:
            popped.append(pop(fifo))
        except cache.FIFOClosedError:
            return popped


def do(*operations: tuple[str, Any]) -> Operation:
    def run(fifo: DeltaFIFO) -> None:
        for name, argument in operations:
            getattr(fifo, name)(*([argument, "0"] if name == "replace" else [argument]))

    return run


FOO2, FOO3 = ("foo", 2), ("foo", 3)


@pytest.mark.parametrize("known_objects", [None, known()], ids=["no known objects", "none known"])
@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param(
            do(("add", FOO2), ("replace", [])), [(ADDED, FOO2), (DELETED, Gone("foo", FOO2))], id="added then deleted"
        ),
        pytest.param(
            do(("add", FOO2), ("replace", [FOO2]), ("replace", [])),
            [(ADDED, FOO2), (REPLACED, FOO2), (DELETED, Gone("foo", FOO2))],
            id="replaced then deleted",
        ),
        pytest.param(
            do(("add", FOO2), ("delete", FOO2), ("replace", [])),
            [(ADDED, FOO2), (DELETED, FOO2)],
            id="a deletion that was seen is better than one missed",
        ),
        pytest.param(
            do(("add", FOO2), ("replace", []), ("delete", FOO3)),
            [(ADDED, FOO2), (DELETED, FOO3)],
            id="also when it comes later",
        ),
        pytest.param(
            do(("add", FOO2), ("replace", []), ("replace", [])),
            [(ADDED, FOO2), (DELETED, Gone("foo", FOO2))],
            id="missed twice",
        ),
        pytest.param(
            do(("add", FOO2), ("delete", FOO2), ("add", FOO3), ("replace", [])),
            [(ADDED, FOO2), (DELETED, FOO2), (ADDED, FOO3), (DELETED, Gone("foo", FOO3))],
            id="added again",
        ),
        pytest.param(
            do(("add", FOO2), ("update", FOO3), ("delete", FOO3)),
            [(ADDED, FOO2), (UPDATED, FOO3), (DELETED, FOO3)],
            id="all its life",
        ),
    ],
)
def test_deltas_of_one_object(
    operations: Operation, expected: list[Any], known_objects: cache.Store[Any] | None
) -> None:
    fifo = DeltaFIFO(key_func, known_objects, emit_delta_type_replaced=True)
    operations(fifo)
    assert pop_all(fifo) == [expected]


KNOWN = [("foo", 5), ("bar", 6), ("baz", 7)]


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        pytest.param(
            do(("delete", ("baz", 10)), ("replace", [("foo", 5)])),
            [[(DELETED, ("baz", 10))], [(SYNC, ("foo", 5))], [(DELETED, Gone("bar", ("bar", 6)))]],
            id="a deletion is queued",
        ),
        pytest.param(
            do(("add", ("baz", 10)), ("replace", [("foo", 5)])),
            [
                [(ADDED, ("baz", 10)), (DELETED, Gone("baz", ("baz", 10)))],
                [(SYNC, ("foo", 5))],
                [(DELETED, Gone("bar", ("bar", 6)))],
            ],
            id="the queue knows better than the store",
        ),
        pytest.param(
            do(("replace", [("bar", 100), ("foo", 5)]), ("replace", [("foo", 5)])),
            [
                [(SYNC, ("bar", 100)), (DELETED, Gone("bar", ("bar", 100)))],
                [(SYNC, ("foo", 5)), (SYNC, ("foo", 5))],
                [(DELETED, Gone("baz", ("baz", 7)))],
            ],
            id="replaced twice",
        ),
        pytest.param(do(("delete", ("other", 1))), [], id="deletion of what nobody knows"),
        pytest.param(do(("delete", ("foo", 8))), [[(DELETED, ("foo", 8))]], id="deletion of what is known"),
    ],
)
def test_deltas_with_known_objects(operations: Operation, expected: list[Any]) -> None:
    fifo = DeltaFIFO(key_func, known(*KNOWN))
    operations(fifo)
    assert pop_all(fifo) == expected


def test_resync_leaves_alone_what_is_queued() -> None:
    fifo = DeltaFIFO(key_func, known(("foo", 5), ("bar", 1)))
    fifo.update(("foo", 6))
    fifo.resync()
    assert pop_all(fifo) == [[(UPDATED, ("foo", 6))], [(SYNC, ("bar", 1))]]


def test_resync_without_known_objects() -> None:
    fifo = DeltaFIFO(key_func)
    fifo.resync()
    assert pop_all(fifo) == []


def test_nobody_jumps_the_queue() -> None:
    fifo = DeltaFIFO(key_func)
    for obj in [("foo", 10), ("bar", 1), ("foo", 11), ("foo", 13), ("zab", 30)]:
        fifo.add(obj)
    assert pop(fifo)[-1] == (ADDED, ("foo", 13))
    fifo.add(("foo", 14))
    assert [deltas[-1][1] for deltas in pop_all(fifo)] == [("bar", 1), ("zab", 30), ("foo", 14)]


@pytest.mark.parametrize(
    ("obj", "key"),
    [
        (("A", 1), "A"),
        (Gone("B", None), "B"),
        ([Delta(ADDED, ("C", 1))], "C"),
        ([Delta(DELETED, Gone("D", None))], "D"),
    ],
)
def test_key_of(obj: Any, key: str) -> None:
    assert DeltaFIFO(key_func).key_of(obj) == key


def test_no_key_of_no_deltas() -> None:
    with pytest.raises(cache.ObjectKeyError, match="0 length Deltas"):
        DeltaFIFO(key_func).key_of([])


A, B = ("a", 1), ("b", 2)


@pytest.mark.parametrize(
    ("operations", "pops", "synced"),
    [
        pytest.param(do(), 0, False, id="nothing came"),
        pytest.param(do(("add", A)), 0, True, id="a change came first"),
        pytest.param(do(("replace", [])), 0, True, id="an empty list"),
        pytest.param(do(("replace", [A, B])), 0, False, id="a list"),
        pytest.param(do(("replace", [A, B])), 1, False, id="half of it taken"),
        pytest.param(do(("replace", [A, B])), 2, True, id="all of it"),
        pytest.param(do(("replace", [A, ("a", 2)])), 1, True, id="one object twice"),
        pytest.param(do(("replace", [A]), ("add", B)), 1, True, id="what came later does not count"),
    ],
)
def test_has_synced(operations: Operation, pops: int, synced: bool) -> None:
    fifo = DeltaFIFO(key_func)
    operations(fifo)
    for _ in range(pops):
        pop(fifo)
    assert fifo.has_synced() == synced
    assert fifo.done().try_recv()[2] == synced


def test_deletions_count_for_the_sync() -> None:
    fifo = DeltaFIFO(key_func, known(*KNOWN))
    fifo.replace([("foo", 5)], "0")
    initial: list[bool] = []
    for _ in range(3):
        assert not fifo.has_synced()
        fifo.pop(lambda deltas, is_initial: initial.append(is_initial))
    assert fifo.has_synced()
    fifo.add(("foo", 6))
    fifo.pop(lambda deltas, is_initial: initial.append(is_initial))
    assert initial == [True, True, True, False]


def test_synced_only_after_the_last_is_processed() -> None:
    fifo = DeltaFIFO(key_func)
    fifo.replace([A], "0")
    during: list[bool] = []
    fifo.pop(lambda deltas, is_initial: during.append(fifo.has_synced()))
    assert during == [False] and fifo.has_synced()


def test_what_fails_to_be_processed_is_gone() -> None:
    fifo = DeltaFIFO(key_func)
    fifo.replace([A, B], "0")

    def fail(deltas: cache.Deltas, is_initial: bool) -> None:
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        fifo.pop(fail)
    assert pop(fifo) == [(SYNC, B)]
    assert fifo.has_synced()


def test_pop_waits_and_ends_when_closed() -> None:
    fifo = DeltaFIFO(key_func)
    popped: golang.Channel[Any] = golang.Channel(2)

    def drain() -> None:
        popped.send(pop(fifo))
        try:
            pop(fifo)
        except cache.FIFOClosedError as err:
            popped.send(err)

    thread = golang.go(drain, name="pop")
    fifo.add(A)
    assert popped.recv(WAIT) == ([(ADDED, A)], True)
    fifo.close()
    assert isinstance(popped.recv(WAIT)[0], cache.FIFOClosedError)
    assert fifo.is_closed()
    thread.join(WAIT)


def test_pop_ends_with_its_context() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    ended: golang.Channel[bool] = golang.Channel(1)

    def drain() -> None:
        with pytest.raises(golang.Canceled):
            DeltaFIFO(key_func).pop(lambda deltas, initial: None, ctx)
        ended.send(True)

    thread = golang.go(drain, name="pop")
    cancel()
    assert ended.recv(WAIT)[1]
    thread.join(WAIT)


def test_get_by_key_is_the_newest() -> None:
    stored = cache.new_store(key_func)
    stored.add(("known", 1))
    fifo = DeltaFIFO(key_func, stored)
    fifo.add(("queued", 1))
    fifo.update(("queued", 2))
    assert fifo.get_by_key("known") == ("known", 1)
    assert fifo.get_by_key("queued") == ("queued", 2)
    fifo.delete(("known", 1))
    assert fifo.get_by_key("known") is None
    assert fifo.get_by_key("neither") is None
