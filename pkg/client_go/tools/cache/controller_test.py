"""Test how deltas reach a store and a handler."""

from __future__ import annotations

import io
from typing import Any

import pytest

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.client_go.tools import cache
from pkg.client_go.tools.cache import Delta, DeltaType, controller
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang.testing import frames_kept_after


def pod(name: str, version: str = "") -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(name=name, resource_version=version))


class Handler:
    """Record the notifications and the store's contents at the time; fail for the objects named in `fails`."""

    def __init__(self, store: cache.Store[Any], *fails: str) -> None:
        self.heard: list[str] = []
        self.stored: list[list[str]] = []
        self._store = store
        self._fails = fails

    def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
        self._hear("+*" if is_in_initial_list else "+", obj.metadata.name)

    def on_update(self, old_obj: v1.Pod, new_obj: v1.Pod) -> None:
        self._hear(
            "~", f"{new_obj.metadata.name}{old_obj.metadata.resource_version}{new_obj.metadata.resource_version}"
        )

    def on_delete(self, obj: v1.Pod | cache.DeletedFinalStateUnknown) -> None:
        self._hear("?" if isinstance(obj, cache.DeletedFinalStateUnknown) else "-", key_func(obj))

    def _hear(self, what: str, name: str) -> None:
        self.heard.append(what + name)
        self.stored.append(sorted(self._store.list_keys()))
        if name in self._fails:
            raise MemoryError


key_func = cache.deletion_handling_meta_namespace_key_func


def indexer(*pods: v1.Pod) -> cache.Indexer[v1.Pod]:
    made = cache.new_indexer(key_func, {})
    made.replace(pods, "1")
    return made


def replaced_all(*pods: v1.Pod) -> Delta:
    return Delta(DeltaType.REPLACED_ALL, cache.ReplacedAllInfo("9", [*pods]))


def test_a_list_is_stored_before_the_handler_hears_first_of_deletions() -> None:
    store = indexer(pod("a", "1"), pod("b", "1"), pod("c", "1"))
    handler = Handler(store)
    controller.process_deltas(handler, store, [replaced_all(pod("d", "2"), pod("b", "2"))], False)
    assert handler.heard == ["?a", "?c", "+d", "~b12"]
    assert handler.stored == [["b", "d"]] * 4


def test_of_a_list_the_handler_hears_all_that_it_can(log: io.StringIO) -> None:
    store = indexer(pod("a"))
    handler = Handler(store, "a", "b")
    controller.process_deltas(handler, store, [replaced_all(pod("b"), pod("c"))], True)
    assert handler.heard == ["?a", "+*b", "+*c"]
    assert log.getvalue().count("Failed to notify a handler of a change") == 2


def test_a_list_that_there_was_no_memory_to_store_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = indexer(pod("a"))
    handler = Handler(store)
    monkeypatch.setattr(store, "replace", failing_once(store.replace, MemoryError()))
    deltas = [replaced_all(pod("b"))]
    with pytest.raises(MemoryError):
        controller.process_deltas(handler, store, deltas, False)
    assert handler.heard == [] and store.list_keys() == ["a"]
    controller.process_deltas(handler, store, deltas, False)
    assert handler.heard == ["?a", "+b"]


def test_a_resync_tells_of_all_that_is_stored() -> None:
    store = indexer(pod("a", "1"), pod("b", "1"))
    handler = Handler(store, "a11")
    controller.process_deltas(handler, store, [Delta(DeltaType.SYNC_ALL, None)], False)
    assert handler.heard == ["~a11", "~b11"]


BATCH = [
    Delta(DeltaType.ADDED, pod("new", "2")),
    Delta(DeltaType.UPDATED, pod("old", "2")),
    Delta(DeltaType.DELETED, pod("gone", "2")),
    Delta(DeltaType.DELETED, cache.DeletedFinalStateUnknown("missed", None)),
    Delta(DeltaType.REPLACED, pod("listed", "2")),
]
BEFORE = [pod(name, "1") for name in ("old", "gone", "missed", "listed")]
HEARD = ["+new", "~old12", "-gone", "?missed", "~listed12"]
AFTER = ["listed", "new", "old"]


def test_a_batch_is_stored_before_the_handler_hears_of_it() -> None:
    store = indexer(*BEFORE)
    handler = Handler(store)
    controller.process_deltas_in_batch(handler, store, BATCH, False)
    assert handler.heard == HEARD
    assert handler.stored == [AFTER] * len(BATCH)


def test_one_by_one_is_the_same_as_a_batch() -> None:
    store = indexer(*BEFORE)
    handler = Handler(store)
    controller.process_deltas(handler, store, BATCH, False)
    assert handler.heard == HEARD
    assert handler.stored[-1] == AFTER and handler.stored[0] != AFTER


def test_of_a_batch_the_handler_hears_what_was_stored(log: io.StringIO) -> None:
    store = indexer()
    handler = Handler(store, "b")
    what: Any = cache.ExplicitKey("no object")
    store.add_indexers({"name": lambda obj: [obj.metadata.name]})
    with pytest.raises(cache.TransactionError) as raised:
        controller.process_deltas_in_batch(
            handler, store, [Delta(DeltaType.ADDED, obj) for obj in (pod("a"), what, pod("b"), pod("c"))], True
        )
    assert [*raised.value.errors] == [1]
    assert handler.heard == ["+*a", "+*b", "+*c"]
    assert log.getvalue().count("Failed to notify a handler of a change") == 1


@pytest.mark.parametrize(
    ("gate", "expected"),
    [
        (None, [True, False]),
        (features.ATOMIC_FIFO, [False, True]),
        (features.UNLOCK_WHILE_PROCESSING_FIFO, [True, True]),
    ],
    ids=["all on", "AtomicFIFO off", "UnlockWhileProcessingFIFO off"],
)
def test_gates_say_how_the_queue_works(gate: str | None, expected: list[bool]) -> None:
    """Feature gates decide whether a list is one delta, and whether the queue is locked during processing."""
    with set_feature_gate_during_test(features.feature_gate, gate or features.ATOMIC_FIFO, gate is None):
        fifo = controller.new_queue_fifo(indexer())
    fifo.replace([pod("a"), pod("b")], "1")
    found: list[bool] = []
    fifo.pop(lambda deltas, first: found.extend([deltas[0].type is DeltaType.REPLACED_ALL, fifo._lock.locked()]))
    assert found == expected


@pytest.mark.parametrize("err", [ValueError("bad"), MemoryError()], ids=lambda err: type(err).__name__)
def test_what_fails_of_a_batch_keeps_no_frames(err: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    store: Any = indexer()
    handler = Handler(store)
    monkeypatch.setattr(store._storage, "_update_locked", failing_once(store._storage._update_locked, err, "'a'"))
    fifo = controller.new_queue_fifo(store)
    fifo.add(pod("a"))
    fifo.add(pod("b"))

    def process(deltas: cache.Deltas, is_in_initial_list: bool) -> None:
        controller.process_deltas_in_batch(handler, store, deltas, is_in_initial_list)

    assert frames_kept_after(lambda: fifo.pop_batch(process, process)) == []
    assert handler.heard == ["+b"]
