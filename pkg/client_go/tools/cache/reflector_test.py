"""Test the reflector: its requests, its store, and its recovery from errors."""

from __future__ import annotations

import datetime
import io
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from framework.waiting import wait_for, wait_until_equal

from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery import types, watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock import testing as clocktesting
from pkg.apimachinery.util import wait
from pkg.client_go.tools import cache, pager
from pkg.client_go.tools.cache import reflector as reflector_
from pkg.client_go.tools.cache import testing
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.golang.testing import frames_kept_after

WAIT = 30.0
BACKGROUND = golang.background()
NO_PAUSE = wait.Backoff(0.0)


DELETED = datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC)


def pod(name: str, version: str = "", **labels: str) -> v1.Pod:
    return v1.Pod(metadata=metav1.ObjectMeta(name=name, resource_version=version, labels=labels))


def status_error(code: int, reason: str, *causes: str) -> apierrors.StatusError:
    details = metav1.StatusDetails(causes=[metav1.StatusCause(reason=cause) for cause in causes])
    return apierrors.StatusError(metav1.Status(status="Failure", code=code, reason=reason, details=details))


TOO_MANY_REQUESTS = status_error(429, "TooManyRequests")
TOO_LARGE = status_error(504, "Timeout", "ResourceVersionTooLarge")
REFUSED = ConnectionRefusedError(111, "connection refused")


class Run:
    """Hold a reflector, its source, and the store that it fills."""

    def __init__(self, source: Any, **options: Any) -> None:
        self.source = source
        self.store: cache.Store[v1.Pod] = cache.new_store(cache.meta_namespace_key_func)
        self.clock = clocktesting.FakeClock()
        self.errors: list[Exception] = []
        options.setdefault("backoff", NO_PAUSE)
        store = options.pop("store", self.store)
        self.reflector = cache.Reflector(source, v1.Pod, store, name="test", clock=self.clock, **options)
        self.reflector.watch_error_handler = lambda _, err: self.errors.append(err)
        self.ctx, self._cancel = golang.with_cancel(BACKGROUND)
        self.thread: golang.Thread | None = None

    def start(self) -> Run:
        self.thread = golang.go(self.reflector.run, self.ctx, name="reflector-test")
        return self

    def stop(self) -> None:
        self._cancel()
        if self.thread is not None:
            self.thread.join(WAIT)
            assert not self.thread.is_alive(), "the reflector does not end"

    def await_resync_timer(self) -> None:
        """Wait until the watch continues after the list; before that, the only timer could be that of the warning."""
        wait_for(
            "the timer of the resync",
            lambda: self.reflector.last_sync_resource_version != "" and self.clock.waiters() == 1,
        )

    def await_names(self, *names: str) -> None:
        wait_until_equal("stored", lambda: sorted(self.store.list_keys()), sorted(names))

    def await_calls(self, *verbs: str) -> list[metav1.ListOptions]:
        """Wait for exactly these calls, and return their options."""
        calls = self.source.calls
        wait_for(f"calls {verbs}", lambda: len(calls) >= len(verbs), describe=lambda: calls)
        assert [verb for verb, _ in self.source.calls] == list(verbs)
        return [options for _, options in self.source.calls]


@pytest.fixture
def source() -> testing.FakeControllerSource[v1.Pod]:
    return testing.FakeControllerSource(v1.Pod)


@pytest.fixture
def run(source: testing.FakeControllerSource[v1.Pod]) -> Iterator[Run]:
    run = Run(source)
    yield run
    run.stop()


def test_watch_list_fills_the_store_and_goes_on_as_the_watch(run: Run) -> None:
    run.source.add(pod("a"), pod("b"))
    run.start().await_names("a", "b")
    run.source.add(pod("c"))
    run.source.delete(pod("a"))
    run.await_names("b", "c")
    wait_for("the server's version", lambda: run.reflector.last_sync_resource_version == run.source.version())
    (options,) = run.await_calls("watch")
    assert options.timeout_seconds is not None and 300 <= options.timeout_seconds <= 600
    assert options == metav1.ListOptions(
        watch=True,
        allow_watch_bookmarks=True,
        resource_version="",
        resource_version_match="NotOlderThan",
        send_initial_events=True,
        timeout_seconds=options.timeout_seconds,
    )


def test_falls_back_to_list_and_watch(run: Run) -> None:
    run.source.watch_list = False
    run.source.add(pod("a"))
    run.start().await_names("a")
    _, listed, watched = run.await_calls("watch", "list", "watch")
    assert listed == metav1.ListOptions(resource_version="0", limit=500)
    assert watched == metav1.ListOptions(
        watch=True, allow_watch_bookmarks=True, resource_version="2", timeout_seconds=watched.timeout_seconds
    )


def test_without_its_gate_it_begins_with_a_list(source: testing.FakeControllerSource[v1.Pod]) -> None:
    source.add(pod("a"))
    with set_feature_gate_during_test(features.feature_gate, features.WATCH_LIST_CLIENT, False):
        run = Run(source)
    run.start().await_names("a")
    listed, watched = run.await_calls("list", "watch")
    run.stop()
    assert not listed.send_initial_events and not watched.send_initial_events


def test_a_client_may_say_that_it_cannot_watch_list(source: testing.FakeControllerSource[v1.Pod]) -> None:
    class Client:
        def is_watch_list_semantics_unsupported(self) -> bool:
            return True

    source.add(pod("a"))
    run = Run(cache.ListWatch(source.list, source.watch, Client())).start()
    run.await_names("a")
    wait_for("a second call", lambda: len(source.calls) == 2)
    assert [verb for verb, _ in source.calls] == ["list", "watch"]
    run.stop()


def test_a_watch_that_ends_goes_on_from_the_last_version(run: Run) -> None:
    run.source.add(pod("a"))
    run.start().await_names("a")
    run.source.add(pod("b"))
    run.await_names("a", "b")
    run.source.cut_watches()
    run.source.add(pod("c"))
    run.await_names("a", "b", "c")
    assert run.await_calls("watch", "watch")[1].resource_version == "3"
    assert run.await_calls("watch", "watch")[1].send_initial_events is None


def test_a_bookmark_moves_the_version_on(run: Run) -> None:
    run.source.add(pod("a"))
    run.start().await_names("a")
    for _ in range(3):
        run.source._version += 1  # Other resources change.
    run.source.bookmark()
    wait_for("version 5", lambda: run.reflector.last_sync_resource_version == "5")
    run.source.cut_watches()
    run.source.compact()
    run.source.add(pod("b"))
    run.await_names("a", "b")
    assert run.await_calls("watch", "watch")[1].resource_version == "5"


def test_expired_watch_begins_a_new_round(run: Run) -> None:
    run.source.add(pod("a"), pod("b"))
    run.start().await_names("a", "b")
    run.source.compact()
    run.source.watch_errors.append(testing.expired())
    run.source.fail_watches(testing.expired())
    run.source.delete(pod("a"))
    run.await_names("b")
    calls = run.await_calls("watch", "watch", "watch")
    # The first attempt asks for the reflector's version. The server refuses it, so the second asks for the newest data.
    assert [options.resource_version for options in calls] == ["", "3", ""]
    assert all(options.send_initial_events for options in calls)
    assert run.errors == []


@pytest.mark.parametrize("err", [testing.expired(), TOO_LARGE], ids=["expired", "too large"])
def test_list_of_a_version_that_the_server_lacks(err: Exception) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod, watch_list=False))
    run.source.add(pod("a"))
    run.source.list_errors.append(err)
    run.start().await_names("a")
    calls = run.await_calls("watch", "list", "list", "watch")
    assert [options.resource_version for options in calls] == ["", "0", "", "2"]
    run.stop()


def test_a_server_that_has_no_version_at_all_is_listed(run: Run) -> None:
    run.source.add(pod("a"))
    run.source.watch_errors.extend([testing.expired(), testing.expired()])
    run.start().await_names("a")
    assert [options.resource_version for options in run.await_calls("watch", "watch", "list", "watch")] == [
        "",
        "",
        "",
        "2",
    ]


def test_relist_asks_for_what_it_has_and_is_not_paged() -> None:
    run = Run(testing.FakeControllerSource(v1.Pod, watch_list=False))
    run.source.add(pod("a"))
    run.start().await_names("a")
    run.await_calls("watch", "list", "watch")
    run.source.fail_watches(status_error(500, "InternalError"))
    calls = run.await_calls("watch", "list", "watch", "watch", "list", "watch")
    assert (calls[4].resource_version, calls[4].limit) == ("2", 0)
    run.stop()


@pytest.mark.parametrize("err", [TOO_MANY_REQUESTS, REFUSED], ids=["429", "refused"])
@pytest.mark.parametrize("watch_list", [True, False])
def test_a_busy_or_absent_server_is_not_listed_again(err: Exception, watch_list: bool) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod, watch_list=watch_list))
    run.source.add(pod("a"))
    run.start().await_names("a")

    wait_for("a watch", lambda: bool(run.source.watches()))
    before = len(run.source.calls)
    run.source.add(pod("b"))
    run.await_names("a", "b")
    run.source.watch_errors.extend([err, err, err])
    run.source.cut_watches()
    run.source.add(pod("c"))
    run.await_names("a", "b", "c")
    after = run.source.calls[before:]
    assert [(verb, options.resource_version, options.send_initial_events) for verb, options in after] == [
        ("watch", "3", None)
    ] * 4
    assert run.errors == []
    run.stop()


def test_429_in_the_middle_of_a_watch(run: Run) -> None:
    run.source.add(pod("a"))
    run.start().await_names("a")
    run.source.fail_watches(TOO_MANY_REQUESTS)
    run.source.add(pod("b"))
    run.await_names("a", "b")
    assert run.await_calls("watch", "watch")[1].send_initial_events is None


def test_a_refused_watch_list_is_tried_again_after_a_pause(source: testing.FakeControllerSource[v1.Pod]) -> None:
    run = Run(source, backoff=wait.Backoff(10.0))
    source.watch_errors.append(REFUSED)
    source.add(pod("a"))
    run.start()
    run.clock.wait_for_waiters()
    run.await_calls("watch")
    run.clock.step(10)
    run.await_names("a")
    run.await_calls("watch", "watch")
    run.stop()


def test_other_errors_are_told_and_the_next_round_waits(source: testing.FakeControllerSource[v1.Pod]) -> None:
    run = Run(source, backoff=wait.Backoff(5.0))
    forbidden = status_error(403, "Forbidden")
    source.watch_errors.append(forbidden)
    source.list_errors.append(forbidden)
    source.add(pod("a"))
    run.start()
    run.clock.wait_for_waiters()
    assert run.errors == [forbidden]
    run.await_calls("watch", "list")
    run.clock.step(5)
    run.await_names("a")
    run.await_calls("watch", "list", "watch")
    run.stop()


def test_pauses_grow_up_to_half_a_minute_and_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod), backoff=None)
    monkeypatch.setattr(random, "random", lambda: 0.0)
    pauses = [run.reflector._delay() for _ in range(9)]
    assert pauses == pytest.approx([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30])
    run.clock.step(121)
    assert run.reflector._delay() == pytest.approx(0.8)
    monkeypatch.setattr(random, "random", lambda: 0.5)
    assert run.reflector._delay() == pytest.approx(1.6 * 1.5)


def test_very_short_watch_ends_the_round(source: testing.FakeControllerSource[v1.Pod], log: io.StringIO) -> None:
    run = Run(source, backoff=wait.Backoff(5.0))
    source.watch_list = False
    run.start()
    run.await_calls("watch", "list", "watch")
    source.cut_watches()
    run.clock.wait_for_waiters()
    run.await_calls("watch", "list", "watch")
    assert "watch lasted less than a second and no items received" in log.getvalue()
    run.clock.step(5)
    run.await_calls("watch", "list", "watch", "watch", "list", "watch")
    run.clock.step(1)
    source.cut_watches()  # An empty watch that lasts at least a second is not an error.
    run.await_calls("watch", "list", "watch", "watch", "list", "watch", "watch")
    run.stop()


class OlderState:
    """Represent a server without versions later than its own.

    It refuses a list from a later version, and a watch from a later version stays silent.
    """

    def __init__(self, source: testing.FakeControllerSource[v1.Pod]) -> None:
        self._source = source
        self.silent: golang.Channel[testing.FakeWatch[v1.Pod]] = golang.Channel(1)

    def list(self, ctx: golang.Context, options: metav1.ListOptions) -> pager.Page[v1.Pod]:
        if self._is_later(options):
            raise TOO_LARGE
        return self._source.list(ctx, options)

    def watch(self, ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[v1.Pod]:
        if not self._is_later(options):
            return self._source.watch(ctx, options)
        if options.send_initial_events:
            raise TOO_LARGE
        silent: testing.FakeWatch[v1.Pod] = testing.FakeWatch()
        self.silent.send(silent, ctx)
        return silent

    def _is_later(self, options: metav1.ListOptions) -> bool:
        return int(options.resource_version or "0") > int(self._source.version())


@pytest.mark.parametrize("watch_list", [True, False])
def test_a_server_that_was_given_back_an_older_state_is_listed(
    source: testing.FakeControllerSource[v1.Pod], watch_list: bool
) -> None:
    source.add(pod("a"))
    run = Run(source).start()
    run.await_names("a")
    source.add(pod("b"))
    run.await_names("a", "b")

    restored: testing.FakeControllerSource[v1.Pod] = testing.FakeControllerSource(v1.Pod, watch_list)
    server = OlderState(restored)
    run.reflector._lister_watcher = server
    source.cut_watches()
    silent, _ = server.silent.recv(WAIT)
    assert silent is not None
    restored.add(pod("c"))
    run.clock.step(150)
    silent.end()  # The client also ends such a watch.
    run.await_names("c")
    wait_for(
        "the version of the restored state", lambda: run.reflector.last_sync_resource_version == restored.version()
    )
    run.stop()


def test_an_event_of_another_type_does_not_end_the_watch(run: Run, log: io.StringIO) -> None:
    run.start().await_calls("watch")
    (watching,) = run.source.watches()
    watching.send(watch.Event(watch.ADDED, v1.Node(metadata=metav1.ObjectMeta(name="n", resource_version="77"))))
    watching.send(watch.Event("NEWKIND", pod("x", "3")))
    watching.send(watch.Event(watch.ADDED, pod("a", "4")))
    run.await_names("a")
    wait_for("version 4", lambda: run.reflector.last_sync_resource_version == "4")
    run.await_calls("watch")
    assert "Unexpected watch event object type" in log.getvalue() and "Unknown watch event" in log.getvalue()


def test_an_object_that_the_store_refuses_does_not_end_the_watch(log: io.StringIO) -> None:
    class Picky(cache.Cache[v1.Pod]):
        def add(self, obj: v1.Pod) -> None:
            if obj.metadata.name == "bad":
                raise ValueError("no thanks")
            super().add(obj)

    store = Picky(cache.meta_namespace_key_func)
    run = Run(testing.FakeControllerSource(v1.Pod), store=store)
    run.start().await_calls("watch")
    wait_for("a watch", lambda: bool(run.source.watches()))
    run.source.add(pod("bad"), pod("good"))
    wait_for("the good object is stored", lambda: store.list_keys() == ["good"])
    run.await_calls("watch")
    assert "no thanks" in log.getvalue() and "Traceback" in log.getvalue()
    run.stop()


def test_synthetic_events_do_not_set_the_version(run: Run) -> None:
    """Synthetic events do not set the version.

    A watch without a version first returns all objects in any order.
    """
    versions: list[str] = []
    events = reflector_._Events(run.reflector, run.store, versions.append, propagate_rv_from_start=False)
    stream = testing.FakeWatch(
        watch.Event(watch.ADDED, pod("a", "9")),
        watch.Event(watch.ADDED, pod("b", "4")),
        watch.Event(watch.BOOKMARK, v1.Pod(metadata=metav1.ObjectMeta(resource_version="10"))),
        watch.Event(watch.ADDED, pod("c", "11")),
    )
    stream.end()
    events.handle(BACKGROUND, 0.0, stream, reflector_._Resync(run.reflector))
    assert versions == ["10", "11"]
    assert sorted(run.store.list_keys()) == ["a", "b", "c"]


def test_a_watch_from_no_version_is_begun_again_from_none(source: testing.FakeControllerSource[v1.Pod]) -> None:
    asked: list[str] = []
    streams = [
        testing.FakeWatch(watch.Event(watch.ADDED, pod("a", "9")), watch.Event(watch.ADDED, pod("b", "4"))),
        testing.FakeWatch(watch.Event(watch.MODIFIED, pod("b", "10")), watch.Event(watch.ADDED, pod("c", "11"))),
        testing.FakeWatch[v1.Pod](),
    ]
    streams[0].end()
    streams[1].end()

    def watch_func(ctx: golang.Context, options: metav1.ListOptions) -> testing.FakeWatch[v1.Pod]:
        asked.append(options.resource_version)
        return streams[len(asked) - 1]

    class Client:
        def is_watch_list_semantics_unsupported(self) -> bool:
            return True

    empty: pager.List[v1.Pod] = pager.List(metav1.ListMeta(resource_version="0"), [])
    run = Run(cache.ListWatch(lambda ctx, options: empty, watch_func, Client())).start()
    wait_for("a third call", lambda: len(asked) == 3)
    assert asked == ["0", "0", "11"]
    run.stop()


@pytest.mark.parametrize("watch_list", [True, False])
def test_once_recovered_it_asks_for_what_it_has(watch_list: bool) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod, watch_list=watch_list))
    (run.source.watch_errors if watch_list else run.source.list_errors).append(testing.expired())
    run.source.add(pod("a"))
    run.start().await_names("a")
    wait_for("a watch", lambda: bool(run.source.watches()))
    before = len(run.source.calls)
    run.source.fail_watches(status_error(500, "InternalError"))
    wait_for("another call", lambda: len(run.source.calls) > before + (0 if watch_list else 1))
    assert {options.resource_version for _, options in run.source.calls[before:]} == {"2"}
    run.stop()


def test_list_and_watch_raises_what_kept_it_from_watching(run: Run) -> None:
    run.source.watch_list = False
    run.source.list_errors.append(status_error(403, "Forbidden"))
    with pytest.raises(apierrors.StatusError) as raised:
        run.reflector.list_and_watch(run.ctx)
    assert apierrors.is_forbidden(raised.value)


def test_watches_are_stopped(run: Run) -> None:
    run.start().await_calls("watch")
    wait_for("a watch", lambda: bool(run.source.watches()))
    (watching,) = run.source.watches()
    run.stop()
    assert watching.stopped.is_set()


def test_a_watch_list_without_its_end_is_stopped_and_tried_again(run: Run) -> None:
    first, second = testing.FakeWatch(watch.Event(watch.ADDED, pod("x", "3"))), testing.FakeWatch[v1.Pod]()
    first.end()
    second.send(watch.Event(watch.ADDED, pod("a", "4")))
    end = {metav1.INITIAL_EVENTS_ANNOTATION_KEY: "true"}
    second.send(watch.Event(watch.BOOKMARK, v1.Pod(metadata=metav1.ObjectMeta(resource_version="5", annotations=end))))
    streams = iter([first, second])
    run = Run(cache.ListWatch(run.source.list, lambda ctx, options: next(streams))).start()
    run.await_names("a")
    assert first.stopped.is_set() and not second.stopped.is_set()
    wait_for("version 5", lambda: run.reflector.last_sync_resource_version == "5")
    run.stop()


def test_a_watch_list_that_ends_early_is_followed_by_a_pause(
    source: testing.FakeControllerSource[v1.Pod], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = testing.FakeWatch(watch.Event(watch.ADDED, pod("x", "3")))
    first.end()
    source.add(pod("a"))
    calls: list[str] = []

    def begin(ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[v1.Pod]:
        calls.append("watch")
        return first if len(calls) == 1 else source.watch(ctx, options)

    run = Run(cache.ListWatch(source.list, begin))
    monkeypatch.setattr(run.reflector, "_pause", lambda ctx: calls.append("pause"))
    run.start().await_names("a")
    assert calls == ["watch", "pause", "watch"]
    run.stop()


def test_warns_of_a_watch_list_that_does_not_end(log: io.StringIO) -> None:
    stream = testing.FakeWatch[v1.Pod]()
    run = Run(cache.ListWatch(lambda ctx, options: pager.List(metav1.ListMeta(), []), lambda ctx, options: stream))
    run.start()
    run.clock.wait_for_waiters()
    run.clock.step(10)
    wait_for("the warning is logged", lambda: "no events received for 10.0s" in log.getvalue())
    stream.send(watch.Event(watch.ADDED, pod("a", "3")))
    wait_for("the events are taken", lambda: not len(stream.result_chan()))

    def step_until_warned() -> bool:
        run.clock.step(10)
        return "received last event" in log.getvalue()

    wait_for("another warning", step_until_warned)
    run.stop()


@pytest.mark.parametrize("where", ["list", "watch"])
def test_ends_in_the_middle_of_a_call(where: str) -> None:
    """The reflector ends in the middle of a call, whatever error the end of its context causes there."""
    called: golang.Channel[None] = golang.Channel(1)

    def block(ctx: golang.Context, options: metav1.ListOptions) -> Any:
        called.send(None)
        ctx.done().recv()
        raise OSError("cut short")

    def listed(ctx: golang.Context, options: metav1.ListOptions) -> pager.Page[v1.Pod]:
        return pager.List(metav1.ListMeta(resource_version="1"), [])

    class Client:
        def is_watch_list_semantics_unsupported(self) -> bool:
            return True

    run = Run(cache.ListWatch(block if where == "list" else listed, block, Client()))
    run.start()
    assert called.recv(WAIT)[1]
    run.stop()
    assert run.errors == []


def test_ends_in_the_middle_of_a_pause(source: testing.FakeControllerSource[v1.Pod]) -> None:
    run = Run(source, backoff=wait.Backoff(3600.0))
    source.watch_errors.append(REFUSED)
    run.start()
    run.clock.wait_for_waiters()
    run.stop()
    assert not run.clock.has_waiters()


def test_resync() -> None:
    """The store is resynced after each period if should_resync returns True."""

    class Store(cache.Cache[v1.Pod]):
        resyncs = 0

        def resync(self) -> None:
            self.resyncs += 1

    store = Store(cache.meta_namespace_key_func)
    wanted: list[bool] = []

    def should_resync() -> bool:
        wanted.append(len(wanted) % 2 == 1)
        return wanted[-1]

    run = Run(testing.FakeControllerSource(v1.Pod), store=store, resync_period=30.0)
    run.reflector.should_resync = should_resync
    run.start()
    for n in range(1, 5):
        run.await_resync_timer()
        run.clock.step(30)
        wait_until_equal("resyncs", lambda: len(wanted), n)
    run.stop()
    assert store.resyncs == 2
    run.await_calls("watch")


def test_a_resync_that_fails_begins_a_new_round() -> None:
    class Store(cache.Cache[v1.Pod]):
        def resync(self) -> None:
            raise ValueError("no")

    run = Run(testing.FakeControllerSource(v1.Pod), store=Store(cache.meta_namespace_key_func), resync_period=30.0)
    run.start()
    run.await_resync_timer()
    run.clock.step(30)
    run.await_calls("watch", "watch")
    run.stop()


@pytest.mark.parametrize(
    ("page_size", "version", "limits"),
    [
        pytest.param(None, "0", [500, 500, 500], id="at first by 500"),
        pytest.param(1000, "0", [1000, 1000], id="as told"),
        pytest.param(None, "5", [0], id="what was seen is not paged"),
    ],
)
def test_pages(page_size: int | None, version: str, limits: list[int]) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod))
    run.source.add(*(pod(f"p{i}") for i in range(1100)))
    run.reflector.watch_list_page_size = page_size
    run.reflector._last_sync_resource_version = "" if version == "0" else version
    run.reflector._list(run.ctx)
    calls = [options for _, options in run.source.calls]
    assert [options.limit for options in calls] == limits
    assert [options.resource_version for options in calls] == [version, *[""] * (len(limits) - 1)]
    assert len(run.store.list_keys()) == 1100


def test_a_server_without_cache_is_always_paged() -> None:
    run = Run(testing.FakeControllerSource(v1.Pod))
    run.source.add(*(pod(f"p{i}") for i in range(600)))
    run.reflector._list(run.ctx)
    run.source.calls.clear()
    run.reflector._list(run.ctx)
    assert [options.limit for _, options in run.source.calls] == [500, 500]


def test_full_list_when_a_page_has_expired() -> None:
    run = Run(testing.FakeControllerSource(v1.Pod))
    run.source.add(*(pod(f"p{i}") for i in range(6)))
    run.reflector.watch_list_page_size = 4
    fail = run.source.list

    def list_func(ctx: golang.Context, options: metav1.ListOptions) -> pager.Page[v1.Pod]:
        if options.continue_:
            run.source.calls.append(("list", options))
            raise testing.expired()
        page: pager.Page[v1.Pod] = fail(ctx, options)
        return page

    run.reflector._lister_watcher = cache.ListWatch(list_func, run.source.watch)
    run.reflector._list(run.ctx)
    assert [(options.limit, options.continue_, options.resource_version) for _, options in run.source.calls] == [
        (4, "", "0"),
        (4, "4", ""),
        (0, "", "0"),
    ]
    assert len(run.store.list_keys()) == 6


@pytest.mark.parametrize(
    ("err", "expected"),
    [
        (testing.expired(), "V4 Watch closed"),
        (status_error(410, "Gone"), "V4 Watch closed"),
        (status_error(403, "Forbidden"), "Failed to watch"),
        (OSError("no route to host"), "Failed to watch"),
    ],
)
def test_default_watch_error_handler(err: Exception, expected: str, log: io.StringIO) -> None:
    run = Run(testing.FakeControllerSource(v1.Pod))
    cache.default_watch_error_handler(run.reflector, err)
    assert ("Failed to watch" in log.getvalue()) == (expected == "Failed to watch")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("watch_list", [True, False], ids=["watch list", "list"])
def test_ends_up_as_the_server_whatever_happens(seed: int, watch_list: bool) -> None:
    """The store ends up like the server, even if watches are cut, expired and refused between random changes."""
    rng = random.Random(seed)
    source = testing.FakeControllerSource(v1.Pod, watch_list=watch_list)
    run = Run(source).start()
    names = [f"p{i}" for i in range(12)]
    faults: list[Callable[[], object]] = [
        source.cut_watches,
        source.bookmark,
        source.compact,
        lambda: source.fail_watches(testing.expired()),
        lambda: source.fail_watches(TOO_MANY_REQUESTS),
        lambda: source.fail_watches(status_error(500, "InternalError")),
        lambda: source.watch_errors.append(rng.choice([REFUSED, TOO_MANY_REQUESTS, TOO_LARGE, testing.expired()])),
        lambda: source.list_errors.append(rng.choice([TOO_LARGE, testing.expired(), OSError("reset")])),
        lambda: run.ctx.wait(0.001),  # The reflector makes some progress in this time.
    ]
    for step in range(400):
        if rng.random() < 0.3:
            rng.choice(faults)()
            continue
        name, there = rng.choice(names), source.objects()
        if name not in there:
            source.add(pod(name, step=str(step)))
        elif rng.random() < 0.5:
            source.modify(pod(name, step=str(step)))
        else:
            source.delete(pod(name))
    source.cut_watches()
    wait_for("the server's state", lambda: {obj.metadata.name: obj for obj in run.store.list()} == source.objects())
    wait_for("the server's version", lambda: run.reflector.last_sync_resource_version == source.version())
    run.stop()


def test_keeps_what_can_no_longer_be_decoded() -> None:
    """An existing object that can no longer be decoded is not treated as deleted."""
    unreadable = watch.Undecodable("", "a", "4")
    store = cache.new_store(cache.meta_namespace_key_func)
    page: pager.List[v1.Pod] = pager.List(metav1.ListMeta(resource_version="1"), [pod("a", "1"), pod("b", "1")])
    stream = testing.FakeWatch[v1.Pod]()
    reflector = cache.Reflector(cache.ListWatch(lambda ctx, options: page, lambda ctx, options: stream), v1.Pod, store)
    reflector._list(BACKGROUND)
    page = pager.List(metav1.ListMeta(resource_version="4"), [pod("b", "3")], [unreadable])
    reflector._list(BACKGROUND)
    assert sorted(store.list_keys()) == ["a", "b"]


@pytest.mark.parametrize(
    ("event_type", "left"),
    [(watch.ADDED, ["a"]), (watch.MODIFIED, ["a"]), (watch.DELETED, [])],
)
def test_event_that_cannot_be_decoded(event_type: str, left: list[str]) -> None:
    store = cache.new_store(cache.meta_namespace_key_func)
    store.add(pod("a", "1"))
    stream = testing.FakeWatch[v1.Pod]()
    stream.send(watch.Event(event_type, watch.Undecodable("", "a", "5")))  # type: ignore[arg-type]
    stream.send(watch.Event(event_type, watch.Undecodable("", "never-seen", "6")))  # type: ignore[arg-type]
    stream.stop()
    page: pager.List[v1.Pod] = pager.List(metav1.ListMeta(), [])
    reflector = cache.Reflector(cache.ListWatch(lambda ctx, options: page, lambda ctx, options: stream), v1.Pod, store)
    events = reflector_._Events(reflector, store, reflector._set_last_sync_resource_version, True)
    events.handle(BACKGROUND, 0.0, stream, reflector_._Resync(reflector))
    assert store.list_keys() == left
    assert reflector.last_sync_resource_version == "6"


def test_watch_list_that_fails_leaves_nothing_for_the_garbage_collector() -> None:
    """A watch list that fails leaves no frames, with all objects so far, for the garbage collector."""

    def watch_(ctx: golang.Context, options: metav1.ListOptions) -> watch.Interface[v1.Pod]:
        stream = testing.FakeWatch[v1.Pod]()
        stream.send(watch.Event(watch.ADDED, pod("a", "1")))
        stream.send(watch.Event(watch.ERROR, metav1.Status(status="Failure", code=500)))  # type: ignore[arg-type]
        stream.stop()
        return stream

    page: pager.List[v1.Pod] = pager.List(metav1.ListMeta(resource_version="1"), [pod("a", "1")])
    store = cache.new_store(cache.meta_namespace_key_func)
    reflector = cache.Reflector(cache.ListWatch(lambda ctx, options: page, watch_), v1.Pod, store)
    assert "_watch_list" not in frames_kept_after(lambda: reflector.list_and_watch(BACKGROUND))
    assert store.list_keys() == ["a"]


def _unreadable(name: str, uid: str, version: str, deleted: bool = False, phase: str = "") -> watch.Undecodable:
    metadata = metav1.ObjectMeta(name=name, uid=types.UID(uid), resource_version=version)
    if deleted:
        metadata.deletion_timestamp, metadata.deletion_grace_period_seconds = DELETED, 7
    return watch.Undecodable("", name, version, v1.Pod(metadata=metadata, status=v1.PodStatus(phase=phase)))


@pytest.mark.parametrize("by_watch", [True, False])
def test_deletion_of_what_can_no_longer_be_decoded(by_watch: bool) -> None:
    """The deletion of an object that cannot be decoded is seen.

    An unknown object is stored as far as it can be decoded.
    """
    store = cache.new_store(cache.meta_namespace_key_func)
    for name in ("ended", "changed", "recreated", "recreated-ended"):
        obj = pod(name, "1")
        obj.metadata.uid, obj.spec.priority = types.UID("u"), 5
        store.add(obj)
    unreadable = [
        _unreadable("ended", "u", "2", deleted=True),
        _unreadable("changed", "u", "2", phase="Failed"),
        _unreadable("recreated", "other", "2"),
        _unreadable("recreated-ended", "other", "2", deleted=True),
        _unreadable("unknown", "u", "2"),
        _unreadable("unknown-ended", "u", "3", deleted=True),
    ]
    stream = testing.FakeWatch[v1.Pod]()
    page: pager.List[v1.Pod] = pager.List(metav1.ListMeta(resource_version="3"), [], unreadable)
    reflector = cache.Reflector(cache.ListWatch(lambda ctx, options: page, lambda ctx, options: stream), v1.Pod, store)
    if by_watch:
        for which in unreadable:
            stream.send(watch.Event(watch.MODIFIED, which))  # type: ignore[arg-type]
        stream.stop()
        events = reflector_._Events(reflector, store, reflector._set_last_sync_resource_version, True)
        events.handle(BACKGROUND, 0.0, stream, reflector_._Resync(reflector))
    else:
        reflector._list(BACKGROUND)
    found = {obj.metadata.name: obj for obj in store.list()}
    assert sorted(found) == ["changed", "ended", "recreated", "recreated-ended", "unknown", "unknown-ended"]
    partial = {name for name, obj in found.items() if isinstance(obj, v1.PartialPod)}
    assert partial == {"recreated", "recreated-ended", "unknown", "unknown-ended"}
    ended = found["ended"].metadata
    assert (ended.deletion_timestamp, ended.deletion_grace_period_seconds) == (DELETED, 7)
    assert (ended.resource_version, found["ended"].spec.priority) == ("2", 5)
    assert found["changed"].status.phase == "Failed" and found["changed"].metadata.deletion_timestamp is None
    assert found["recreated"].metadata.uid == found["recreated-ended"].metadata.uid == "other"
    assert found["unknown-ended"].metadata.deletion_timestamp == DELETED
    assert reflector.last_sync_resource_version == "3"


def test_what_is_known_in_part_follows_what_can_be_read() -> None:
    store = cache.new_store(cache.meta_namespace_key_func)
    stream = testing.FakeWatch[v1.Pod]()
    for which in (_unreadable("a", "u", "1"), _unreadable("a", "u", "2", phase="Failed")):
        stream.send(watch.Event(watch.MODIFIED, which))  # type: ignore[arg-type]
    stream.send(watch.Event(watch.MODIFIED, watch.Undecodable("", "b", "3", v1.Pod())))  # type: ignore[arg-type]
    stream.stop()
    page: pager.List[v1.Pod] = pager.List(metav1.ListMeta(), [])
    reflector = cache.Reflector(cache.ListWatch(lambda ctx, options: page, lambda ctx, options: stream), v1.Pod, store)
    events = reflector_._Events(reflector, store, reflector._set_last_sync_resource_version, True)
    events.handle(BACKGROUND, 0.0, stream, reflector_._Resync(reflector))
    (obj,) = store.list()
    assert isinstance(obj, v1.PartialPod)
    assert (obj.metadata.resource_version, obj.status.phase) == ("2", "Failed")
