"""Test the SharedIndexInformer: its store, its handlers, resyncs, and how it starts and ends."""

from __future__ import annotations

import io
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.waiting import wait_for, wait_until_equal

from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.util.runtime.testing import failing_once
from pkg.client_go.tools import cache
from pkg.client_go.tools.cache import controller, shared_informer, testing
from pkg.component_base.featuregate.testing import set_feature_gate_during_test

WAIT = 30.0
BACKGROUND = golang.background()


def pod(name: str, **labels: str) -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(name=name, labels=labels))


class Listener:
    """Record notifications: "+a" for an addition, "+*a" for one of the first list, "~a", "-a", "?a"."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
        self.heard.append(f"+{'*' if is_in_initial_list else ''}{obj.metadata.name}")

    def on_update(self, old_obj: v1.Pod, new_obj: v1.Pod) -> None:
        self.heard.append(f"~{new_obj.metadata.name}")

    def on_delete(self, obj: v1.Pod | cache.DeletedFinalStateUnknown) -> None:
        if isinstance(obj, cache.DeletedFinalStateUnknown):
            self.heard.append(f"?{obj.key}")
        else:
            self.heard.append(f"-{obj.metadata.name}")

    def names(self) -> list[str]:
        """Return the names of the objects whose additions it received."""
        return sorted(each.lstrip("+*") for each in self.heard)

    def await_heard(self, *heard: str) -> None:
        """Wait for exactly these notifications, and forget them."""
        wait_for(f"heard {heard}", lambda: len(self.heard) >= len(heard), describe=lambda: self.heard)
        assert self.heard == list(heard)
        self.heard.clear()


class Run:
    def __init__(self, resync_period: float = 0.0) -> None:
        self.clock = clocktesting.FakeClock()
        self.source = testing.FakeControllerSource(v1.Pod)
        indexers: cache.Indexers = {"app": lambda obj: [obj.metadata.labels.get("app", "")]}
        self.informer = cache.SharedIndexInformer(self.source, v1.Pod, resync_period, indexers, self.clock)
        self.ctx, self.cancel = golang.with_cancel(BACKGROUND)
        self.thread: golang.Thread | None = None

    def start(self) -> None:
        self.thread = golang.go(self.informer.run, self.ctx, name="informer-test")

    def stop(self) -> None:
        self.cancel()
        if self.thread is not None:
            self.thread.join(WAIT)
            assert not self.thread.is_alive(), "the informer does not end"


@pytest.fixture
def run() -> Iterator[Run]:
    run = Run()
    yield run
    run.stop()


def test_store_and_handler_follow_the_server(run: Run) -> None:
    listener = Listener()
    registration = run.informer.add_event_handler(listener)
    run.source.add(pod("a"))
    assert not run.informer.has_synced() and not registration.has_synced()
    assert run.informer.last_sync_resource_version() == ""
    run.start()
    listener.await_heard("+*a")
    wait_for("the handler has heard of all objects", registration.has_synced)
    assert run.informer.has_synced()
    assert cache.wait_for(run.ctx, run.informer)
    run.source.add(pod("b", app="web"))
    listener.await_heard("+b")
    run.source.modify(pod("a", app="web"))
    listener.await_heard("~a")
    run.source.delete(pod("b"))
    listener.await_heard("-b")
    assert [obj.metadata.name for obj in run.informer.get_indexer().by_index("app", "web")] == ["a"]
    assert run.informer.get_store().list_keys() == ["a"]
    wait_for("the server's version", lambda: run.informer.last_sync_resource_version() == run.source.version())


def test_a_missed_deletion_is_told(run: Run) -> None:
    listener = Listener()
    run.informer.add_event_handler(listener)
    run.source.add(pod("a"), pod("b"))
    run.start()
    listener.await_heard("+*a", "+*b")
    run.source.watch_errors.append(testing.expired())
    run.source.cut_watches()
    run.clock.wait_for_waiters()
    run.source.delete(pod("a"))
    run.source.modify(pod("b"))
    run.source.add(pod("c"))
    run.clock.step(60)
    listener.await_heard("?a", "~b", "+c")


def test_after_a_disruption_who_wants_no_resync_hears_only_of_changes() -> None:
    run = Run(resync_period=1.0)
    plain, resyncing = Listener(), Listener()
    errors: list[Exception] = []
    run.informer.set_watch_error_handler(lambda reflector, err: errors.append(err))
    run.informer.add_event_handler(plain, 0.0)
    run.informer.add_event_handler(resyncing, 1.0)
    run.source.add(pod("same"), pod("changed"))
    run.start()
    plain.await_heard("+*same", "+*changed")
    resyncing.await_heard("+*same", "+*changed")
    run.clock.wait_for_waiters()
    run.clock.step(1)
    resyncing.await_heard("~same", "~changed")
    run.clock.wait_for_waiters()
    run.source.watch_errors.append(testing.expired())
    run.source.cut_watches()
    # The error is reported after the resync's timer was stopped.
    wait_for("the pause before the next round", lambda: len(errors) == 1 and run.clock.waiters() == 1)
    run.source.modify(pod("changed"))
    run.clock.step(60)
    resyncing.await_heard("~same", "~changed")
    plain.await_heard("~changed")
    run.stop()


def test_a_late_handler_gets_the_existing_objects(run: Run) -> None:
    run.source.add(pod("a"), pod("b"))
    run.start()
    wait_for("the informer has all objects", run.informer.has_synced)
    late = Listener()
    registration = run.informer.add_event_handler(late)
    late.await_heard("+*a", "+*b")
    wait_for("the handler has heard of all objects", registration.has_synced)
    run.source.modify(pod("a"))
    late.await_heard("~a")


def test_handlers_that_join_while_objects_change(run: Run) -> None:
    """Each handler that joins while objects change receives every object, either as an existing or as a new one."""
    run.source.add(pod("first"))
    run.start()
    listeners = []
    for i in range(20):
        run.source.add(pod(f"p{i}"))
        listeners.append(Listener())
        run.informer.add_event_handler(listeners[-1])
    expected = sorted(["first", *(f"p{i}" for i in range(20))])
    for listener in listeners:
        wait_until_equal("objects that a handler heard of", listener.names, expected)


def test_a_slow_handler_holds_up_nobody(run: Run) -> None:
    release = threading.Event()

    class Slow(Listener):
        def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
            assert release.wait(4 * WAIT)
            super().on_add(obj, is_in_initial_list)

    slow, fast = Slow(), Listener()
    slow_registration, fast_registration = run.informer.add_event_handler(slow), run.informer.add_event_handler(fast)
    run.source.add(pod("a"))
    run.start()
    wait_for("the handler has heard of all objects", fast_registration.has_synced)
    run.source.add(*(pod(f"p{i}") for i in range(500)))
    wait_for("the fast handler has heard all", lambda: len(fast.heard) == 501)
    assert run.informer.has_synced() and not slow_registration.has_synced() and slow.heard == []
    release.set()
    wait_for("the slow handler has heard all", lambda: len(slow.heard) == 501)
    assert slow.heard == fast.heard and slow_registration.has_synced()


def test_a_handler_that_fails_hears_of_the_next(run: Run, log: io.StringIO) -> None:
    class Failing(Listener):
        def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
            super().on_add(obj, is_in_initial_list)
            raise ValueError("bad handler")

    failing = Failing()
    registration = run.informer.add_event_handler(failing)
    run.source.add(pod("a"), pod("b"))
    run.start()
    failing.await_heard("+*a", "+*b")
    wait_for("the handler has heard of all objects", registration.has_synced)
    assert "bad handler" in log.getvalue() and "Traceback" in log.getvalue()


def test_what_there_is_no_memory_to_store_is_stored_and_told_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    indexer = run.informer.get_indexer()
    monkeypatch.setattr(controller, "_RETRY_PERIOD", 0.0)
    monkeypatch.setattr(indexer, "replace", failing_once(indexer.replace, MemoryError()))
    listener = Listener()
    registration = run.informer.add_event_handler(listener)
    run.source.add(pod("a"), pod("b"))
    run.start()
    listener.await_heard("+*a", "+*b")
    wait_for("the handler has heard of all objects", registration.has_synced)
    assert indexer.list_keys() == ["a", "b"]


@pytest.mark.parametrize(
    "off",
    [
        None,
        features.IN_ORDER_INFORMERS_BATCH_PROCESS,
        features.UNLOCK_WHILE_PROCESSING_FIFO,
        features.ATOMIC_FIFO,
    ],
    ids=lambda off: f"{off} off" if off else "all on",
)
def test_handlers_hear_of_all_objects_in_the_order_of_the_changes(off: str | None) -> None:
    """Handlers receive all objects in the order of the changes.

    The order includes changes that arrived during the processing of others, and may have reached the store together.
    """
    with set_feature_gate_during_test(features.feature_gate, off or features.ATOMIC_FIFO, off is None):
        run = Run()
        listener = Listener()
        run.informer.add_event_handler(listener)
        run.start()
        wait_for("the informer has all objects", run.informer.has_synced)
        with run.informer._block_deltas:
            run.source.add(pod("first"), pod("a"), pod("b"))
            run.source.modify(pod("a"))
            run.source.delete(pod("b"))
            run.source.modify(pod("a"))
        listener.await_heard("+first", "+a", "+b", "~a", "-b", "~a")
        run.stop()


@pytest.mark.parametrize(("batches", "expected"), [(True, ["+b", "+a"]), (False, ["+a", "+b"])])
def test_what_there_is_no_memory_to_store_of_a_batch_is_stored_and_told_later(
    run: Run, monkeypatch: pytest.MonkeyPatch, batches: bool, expected: list[str]
) -> None:
    """An object of a batch that could not be stored for lack of memory is stored and reported later.

    Without the gate there are no batches, so later objects have to wait.
    """
    monkeypatch.setattr(controller, "_RETRY_PERIOD", 0.0)
    informer: Any = run.informer
    storage = informer.get_indexer()._storage
    monkeypatch.setattr(storage, "_update_locked", failing_once(storage._update_locked, MemoryError(), "'a'"))
    listener = Listener()
    informer.add_event_handler(listener)
    with set_feature_gate_during_test(features.feature_gate, features.IN_ORDER_INFORMERS_BATCH_PROCESS, batches):
        run.start()
        wait_for("the informer has all objects", informer.has_synced)
    with informer._block_deltas:
        run.source.add(pod("first"))
        wait_for("first is queued", lambda: informer._queue.get_by_key("first") is not None)
        run.source.add(pod("a"), pod("b"))
        wait_for("b is queued", lambda: informer._queue.get_by_key("b") is not None)
    listener.await_heard("+first", *expected)
    assert sorted(informer.get_indexer().list_keys()) == ["a", "b", "first"]


def test_an_informer_waits_for_threads(run: Run, monkeypatch: pytest.MonkeyPatch, log: io.StringIO) -> None:
    """An informer waits for its threads, each of which can be started at the third attempt."""
    tries: Counter[str] = Counter()
    start = golang.go

    def go(fn: Callable[..., object], *args: Any, name: str = "") -> golang.Thread:
        tries[name] += 1
        if tries[name] < 3:
            raise golang.ThreadError(f"start thread {name!r}")
        return start(fn, *args, name=name)

    monkeypatch.setattr("pkg.apimachinery.util.wait.wait._THREAD_RETRY_PERIOD", 0.0)
    monkeypatch.setattr("pkg.apimachinery.util.wait.wait.golang.go", go)
    listener = Listener()
    run.informer.add_event_handler(listener)
    run.source.add(pod("a"))
    run.thread = start(run.informer.run, run.ctx, name="informer-test")
    listener.await_heard("+*a")
    assert dict(tries) == {"informer-handler-Pod": 3, "reflector-Pod": 3}
    assert "Unable to start a thread, will retry" in log.getvalue()


def test_a_handler_that_gets_no_thread_is_not_added(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.start()
    wait_for("the informer has all objects", run.informer.has_synced)

    def go(*args: object, name: str) -> golang.Thread:
        raise golang.ThreadError("no thread")

    with monkeypatch.context() as patched:
        patched.setattr("pkg.client_go.tools.cache.shared_informer.golang.go", go)
        with pytest.raises(golang.ThreadError):
            run.informer.add_event_handler(Listener())
    listener = Listener()
    run.informer.add_event_handler(listener)
    run.source.add(pod("a"))
    listener.await_heard("+a")


def test_a_watch_error_handler_that_fails_ends_nothing(run: Run, log: io.StringIO) -> None:
    def fail(reflector: cache.Reflector, err: Exception) -> None:
        raise RecursionError("too deep")

    run.informer.set_watch_error_handler(fail)
    run.source.watch_list = False
    run.source.list_errors.append(ValueError("nonsense"))
    run.start()
    wait_for("the handler's failure is logged", lambda: "Unable to handle the error of a watch" in log.getvalue())

    def has_synced() -> bool:
        run.clock.step(60)
        return run.informer.has_synced()

    wait_for("the informer has all objects", has_synced)


def test_remove_event_handler(run: Run) -> None:
    removed, stays = Listener(), Listener()
    registration = run.informer.add_event_handler(removed)
    run.informer.add_event_handler(stays)
    run.source.add(pod("a"))
    run.start()
    removed.await_heard("+*a")
    stays.await_heard("+*a")
    run.informer.remove_event_handler(registration)
    run.informer.remove_event_handler(registration)
    run.source.add(pod("b"))
    stays.await_heard("+b")
    run.stop()
    assert removed.heard == []
    run.informer.remove_event_handler(registration)


def test_remove_before_the_start(run: Run) -> None:
    removed, stays = Listener(), Listener()
    run.informer.remove_event_handler(run.informer.add_event_handler(removed))
    run.informer.add_event_handler(stays)
    run.source.add(pod("a"))
    run.start()
    stays.await_heard("+*a")
    assert removed.heard == []


def test_one_handler_registered_twice_hears_twice(run: Run) -> None:
    listener = Listener()
    first = run.informer.add_event_handler(listener)
    run.informer.add_event_handler(listener)
    run.source.add(pod("a"))
    run.start()
    listener.await_heard("+*a", "+*a")
    run.informer.remove_event_handler(first)
    run.source.add(pod("b"))
    listener.await_heard("+b")


def test_a_handler_may_remove_itself_and_end_the_informer(run: Run) -> None:
    class Once(Listener):
        registration: cache.ResourceEventHandlerRegistration

        def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
            super().on_add(obj, is_in_initial_list)
            run.informer.remove_event_handler(self.registration)
            run.cancel()

    once = Once()
    once.registration = run.informer.add_event_handler(once)
    run.source.add(pod("a"), pod("b"))
    run.start()
    once.await_heard("+*a")
    run.stop()


def test_what_is_refused_when_stopped(run: Run, log: io.StringIO) -> None:
    run.start()
    wait_for("the informer has all objects", run.informer.has_synced)
    with pytest.raises(shared_informer.InformerStateError, match="already started"):
        run.informer.set_watch_error_handler(lambda reflector, err: None)
    assert not run.informer.is_stopped()
    run.stop()
    assert run.informer.is_stopped()
    with pytest.raises(shared_informer.InformerStateError, match="stopped already"):
        run.informer.add_event_handler(Listener())
    with pytest.raises(shared_informer.InformerStateError, match="stopped already"):
        run.informer.add_indexers({})
    run.informer.run(run.ctx)
    assert "run more than once is not allowed" in log.getvalue()


def test_watch_error_handler(run: Run) -> None:
    told: list[Exception] = []
    run.informer.set_watch_error_handler(lambda reflector, err: told.append(err))
    refused = OSError("no")
    run.source.watch_errors.append(refused)
    run.source.list_errors.append(refused)
    run.start()
    wait_for("the refusal is told", lambda: told == [refused])


def test_threads_are_few_and_end(run: Run) -> None:
    before = set(threading.enumerate())
    run.informer.add_event_handler(Listener())
    run.start()
    wait_for("the informer has all objects", run.informer.has_synced)
    names = {thread.name for thread in set(threading.enumerate()) - before}
    assert names == {"informer-test", "reflector-Pod", "informer-handler-Pod"}
    run.stop()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("stop_first", [True, False])
def test_stop_before_the_first_list(run: Run, stop_first: bool) -> None:
    run.informer.add_event_handler(Listener())
    if stop_first:
        run.cancel()
    run.start()
    run.stop()
    assert run.informer.is_stopped()


def test_resync_periods() -> None:
    """Each handler receives all objects again at its own period."""
    run = Run(resync_period=1.0)
    never, every_2, every_3 = Listener(), Listener(), Listener()
    run.informer.add_event_handler(never, 0.0)
    run.informer.add_event_handler(every_2, 2.0)
    run.informer.add_event_handler(every_3, 3.0)
    run.source.add(pod("a"), pod("b"))
    run.start()
    for listener in (never, every_2, every_3):
        listener.await_heard("+*a", "+*b")

    def step() -> None:
        wait_for("the timer of the next look", lambda: run.clock.waiters() == 1)
        run.clock.step(1.0)

    step()
    step()
    every_2.await_heard("~a", "~b")
    step()
    every_3.await_heard("~a", "~b")
    assert never.heard == [] and every_2.heard == []
    step()
    every_2.await_heard("~a", "~b")
    run.source.modify(pod("a"))
    for listener in (never, every_2, every_3):
        listener.await_heard("~a")
    run.stop()


def test_resync_check_period(run: Run, log: io.StringIO) -> None:
    """Before the start the informer adapts to the shortest requested period.

    Afterwards handlers adapt to the informer.
    """
    run = Run(resync_period=12 * 3600.0)
    periods: list[Any] = [run.informer.add_event_handler(Listener(), period) for period in (0.0, 60.0, 55.0, 0.2)]
    assert run.informer._resync_check_period == 1.0
    assert [registration.resync_period for registration in periods] == [0.0, 60.0, 55.0, 1.0]
    assert "Resync period is too small" in log.getvalue()
    run.start()
    wait_for("the informer has all objects", run.informer.has_synced)
    run.informer._resync_check_period = 30.0
    late: Any = run.informer.add_event_handler(Listener(), 5.0)
    assert late.resync_period == 30.0
    assert "has already started" in log.getvalue()
    run.stop()


def test_an_informer_without_resyncs_does_none(log: io.StringIO) -> None:
    assert shared_informer._determine_resync_period(5.0, 0.0) == 0.0
    assert "doesn't support resyncing" in log.getvalue()
    assert shared_informer._determine_resync_period(0.0, 5.0) == 0.0
    assert shared_informer._determine_resync_period(3.0, 5.0) == 5.0


def test_wait_for_cache_sync() -> None:
    answers = iter([False, False, True])
    ctx, cancel = golang.with_cancel(BACKGROUND)
    assert cache.wait_for_cache_sync(ctx, lambda: True, lambda: next(answers))
    cancel()
    assert not cache.wait_for_cache_sync(ctx, lambda: False)


def test_wait_for(run: Run) -> None:
    ctx, cancel = golang.with_cancel(BACKGROUND)
    cancel()
    assert cache.wait_for(ctx)
    assert not cache.wait_for(ctx, run.informer)
    run.start()
    assert cache.wait_for(BACKGROUND, run.informer)
    assert cache.wait_for(ctx, run.informer), "what is done is done, whatever the context"


def test_handler_funcs() -> None:
    heard: list[Any] = []
    funcs: cache.ResourceEventHandlerFuncs[str] = cache.ResourceEventHandlerFuncs(
        add_func=heard.append, update_func=lambda old, new: heard.append((old, new)), delete_func=heard.append
    )
    funcs.on_add("a", True)
    funcs.on_update("a", "b")
    funcs.on_delete("c")
    assert heard == ["a", ("a", "b"), "c"]
    nothing: cache.ResourceEventHandlerFuncs[str] = cache.ResourceEventHandlerFuncs()
    nothing.on_add("a", False)
    nothing.on_update("a", "b")
    nothing.on_delete("c")


class View:
    """Keep, by name, the objects that this handler was notified of."""

    def __init__(self) -> None:
        self.pods: dict[str, v1.Pod] = {}

    def on_add(self, obj: v1.Pod, is_in_initial_list: bool) -> None:
        self.pods[obj.metadata.name] = obj

    def on_update(self, old_obj: v1.Pod, new_obj: v1.Pod) -> None:
        assert self.pods[new_obj.metadata.name] == old_obj, "told of a change of what it does not know"
        self.pods[new_obj.metadata.name] = new_obj

    def on_delete(self, obj: v1.Pod | cache.DeletedFinalStateUnknown) -> None:
        del self.pods[cache.deletion_handling_meta_namespace_key_func(obj)]


class Chance:
    """Cause random events of an informer, its server and its handlers."""

    def __init__(self, run: Run, seed: int) -> None:
        self._run = run
        self._rng = random.Random(seed)
        self.views: list[View] = []
        self._happenings: list[Callable[[], object]] = [
            self._join,
            run.source.cut_watches,
            run.source.compact,
            lambda: run.source.fail_watches(testing.expired()),
            lambda: run.source.watch_errors.append(testing.expired()),
            lambda: run.ctx.wait(0.001),
            lambda: run.clock.step(60),
        ]

    def _join(self) -> None:
        self.views.append(View())
        self._run.informer.add_event_handler(self.views[-1])

    def step(self, number: int) -> None:
        """Cause a random event, or create, change or delete one of eight pods."""
        if self._rng.random() < 0.3:
            self._rng.choice(self._happenings)()
            return
        source, name = self._run.source, f"p{self._rng.randrange(8)}"
        change = self._rng.choice([source.modify, source.delete]) if name in source.objects() else source.add
        change(pod(name, step=str(number)))


@pytest.mark.parametrize("seed", range(5))
def test_handlers_end_up_with_what_the_server_has(seed: int) -> None:
    """Handlers end up with the server's objects, even if watches are cut and expire at random points.

    This holds whenever the handler joined.
    """
    run = Run()
    run.start()
    chance = Chance(run, seed)
    for number in range(300):
        chance.step(number)

    def settled() -> bool:
        run.clock.step(60)  # No delay is longer than this.
        return all(view.pods == run.source.objects() for view in chance.views)

    wait_for("all handlers have what the server has", settled)
    run.stop()
    assert len(chance.views) > 3
