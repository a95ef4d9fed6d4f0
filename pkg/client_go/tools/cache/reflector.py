"""Keep a store in step with the API server's objects of one kind.

Go: k8s.io/client-go/tools/cache/reflector.go

Each round of list_and_watch fetches all objects, replaces the store's contents with them, and then runs one watch after
the other. Each watch starts at the resource version at which the previous one ended. The round ends when a watch fails
in a way that requires the objects to be listed again.

By default the objects arrive as the initial events of a watch ("watch list"). A marked bookmark ends the initial
events, and the same watch continues as the first watch of the round. If the server does not support watch lists, or the
gate WatchListClient is off, the objects arrive as a list in pages.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.apimachinery import watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.net import util as utilnet
from pkg.apimachinery.util.runtime import contain
from pkg.client_go.tools import pager
from pkg.client_go.tools.cache.delta_fifo import deletion_handling_meta_namespace_key_func
from pkg.client_go.tools.cache.store import new_store
from pkg.client_go.util import watchlist

if TYPE_CHECKING:
    from pkg.client_go.tools.cache.listwatch import ListerWatcher

T_contra = TypeVar("T_contra", contravariant=True)

# Each watch asks for a random timeout between this value and twice this value, in seconds, so that the watches of many
# clients do not all restart at the same time.
_MIN_WATCH_TIMEOUT = 300.0

# With these parameters the reflector makes about one attempt per 45 s against a server that is down.
_BACKOFF = wait.Backoff(duration=0.8, factor=2.0, jitter=1.0, steps=38, cap=30.0)
_BACKOFF_RESET = 120.0

# A watch that ended within this time (in seconds) without an event is an error. Restarting such a watch at once would
# be a busy loop.
_SHORT_WATCH = 1.0
# An API server sends a bookmark each minute, except while its own state is older than the version at which the watch
# started. The unit is seconds.
_SILENT_WATCH = 120.0

# A warning is logged each time a watch list has gone this long, in seconds, without finishing.
_INITIAL_EVENTS_END_WARNING = 10.0


class ReflectorStore(Protocol[T_contra]):
    """Define what a reflector needs from a store, which owns the objects that it receives."""

    def get_by_key(self, key: str) -> Any | None:
        """Return the newest version of an object that the store has."""
        ...

    def add(self, obj: T_contra) -> None: ...

    def update(self, obj: T_contra) -> None: ...

    def delete(self, obj: T_contra) -> None: ...

    def replace(self, objs: Iterable[T_contra], resource_version: str) -> None: ...

    def resync(self) -> None: ...


class VeryShortWatchError(Exception):
    """Signal that a watch ended within a second without an event."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"very short watch: {name}: Unexpected watch close - watch lasted less than a second and no items received"
        )


class SilentWatchError(Exception):
    """Signal that a watch lasted for minutes without an event or a bookmark.

    DIVERGES (safer): the reflector lists all objects again after a watch without any event or bookmark for minutes.
    Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watch: the next watch continues from the reflector's
    resource version.
    Why: a server whose storage was restored from a backup sends no events until its version has caught up with the
    reflector's.
    Test: reflector_test.py:test_a_server_that_was_given_back_an_older_state_is_listed
    """

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"silent watch: {name}: no event and no bookmark in {seconds:.0f}s")


WatchErrorHandler = Callable[["Reflector", Exception], object]
"""The reflector calls this function with each error that ends a round, before it backs off.

The function must return soon.
"""


def default_watch_error_handler(reflector: Reflector, err: Exception) -> None:
    """Log the error at a level that fits its kind."""
    about = {"reflector": reflector.name, "type": reflector.type_description}
    if is_expired_error(err):
        klog.v(4).info_s("Watch closed", **about, err=err)
    else:
        klog.error_s(err, "Failed to watch", **about)


class Reflector:
    """Run list_and_watch in the thread that calls run.

    Any thread may read last_sync_resource_version.
    """

    def __init__(
        self,
        lister_watcher: ListerWatcher[Any],
        expected_type: type | None,
        store: ReflectorStore[Any],
        resync_period: float = 0.0,
        name: str = "",
        clock: clock_.Clock | None = None,
        backoff: wait.Backoff | None = None,
        min_watch_timeout: float = _MIN_WATCH_TIMEOUT,
    ) -> None:
        """Prepare a reflector that ignores objects of any type other than the expected one.

        If expected_type is None, the reflector accepts every type. After each resync period (in seconds; 0 means never)
        the reflector asks the store to report its objects again, provided that should_resync returns True.
        """
        self.type_description = expected_type.__name__ if expected_type is not None else "<unspecified>"
        self.name = name or f"reflector-{self.type_description}"
        self.should_resync: Callable[[], bool] = lambda: True
        self.watch_error_handler: WatchErrorHandler = default_watch_error_handler
        # `watch_list_page_size` is the number of objects per page of a list. None lets the reflector choose.
        self.watch_list_page_size: int | None = None
        self._lister_watcher = lister_watcher
        self._expected_type = expected_type
        self._store = store
        self._resync_period = resync_period
        self._clock: clock_.Clock = clock or clock_.RealClock()
        self._min_watch_timeout = min_watch_timeout
        self._delay = (backoff or _BACKOFF).delay_with_reset(self._clock, _BACKOFF_RESET)
        # `_paginated_result` is True if the server pages even lists that it could answer from its watch cache, which
        # means that it has no such cache.
        self._paginated_result = False
        self._last_sync_resource_version = ""
        # `_is_last_sync_resource_version_unavailable` is True if the server no longer knows that version, or does not
        # know it yet.
        self._is_last_sync_resource_version_unavailable = False
        self._use_watch_list = features.feature_gate.enabled(
            features.WATCH_LIST_CLIENT
        ) and not watchlist.does_client_not_support_watch_list_semantics(lister_watcher)

    @property
    def last_sync_resource_version(self) -> str:
        """Return the resource version up to which the store is complete, or "" before the first round."""
        return self._last_sync_resource_version

    def run(self, ctx: golang.Context) -> None:
        """Keep the store up to date until ctx is done."""
        about = {"type": self.type_description, "resyncPeriod": self._resync_period, "reflector": self.name}
        klog.v(3).info_s("Starting reflector", **about)
        while ctx.err() is None:
            try:
                self.list_and_watch(ctx)
            except Exception as err:  # Whatever fails, the reflector must try again, or the store would stay outdated.
                with contain("Unable to handle the error of a watch", ctx, **about):
                    self.watch_error_handler(self, err)
            self._pause(ctx)
        klog.v(3).info_s("Stopping reflector", **about)

    def list_and_watch(self, ctx: golang.Context) -> None:
        """Run one round.

        Return when a new round is due or ctx is done. Raise the error that prevented the watch.
        """
        klog.v(3).info_s("Listing and watching", type=self.type_description, reflector=self.name)
        try:
            watcher = self._watch_list_or_list(ctx)
            klog.v(2).info_s("Caches populated", type=self.type_description, reflector=self.name)
            self._watch_with_resync(ctx, watcher)
        except Exception:
            # After the context has ended, an interrupted call may raise any error, so only ctx.err() decides.
            if ctx.err() is None:
                raise

    def _watch_list_or_list(self, ctx: golang.Context) -> watch.Interface[Any] | None:
        """Fill the store, and return the watch that continues from there, or None if no watch is open yet."""
        if self._use_watch_list:
            try:
                return self._watch_list(ctx)
            except Exception as err:
                # A server that does not know watch lists may respond with any error. If something else is wrong, the
                # list fails too.
                if ctx.err() is not None:
                    raise
                klog.v(4).info_s(
                    "Data couldn't be fetched in watchlist mode. Falling back to regular list. "
                    "This is expected if watchlist is not supported or disabled in kube-apiserver.",
                    err=err,
                )
        self._list(ctx)
        return None

    def _watch_with_resync(self, ctx: golang.Context, watcher: watch.Interface[Any] | None) -> None:
        resync = _Resync(self)
        try:
            self._watch(ctx, watcher, resync)
        finally:
            resync.stop()

    def _watch(self, ctx: golang.Context, watcher: watch.Interface[Any] | None, resync: _Resync) -> None:
        """Run one watch after the other, each starting where the previous one ended.

        `watcher` is the first watch if it is not None.
        """
        while True:
            start = self._clock.monotonic()
            propagate_rv_from_start = True
            if watcher is None:
                # A watch without a specific version first sends all objects, which are not in the order of their
                # versions.
                propagate_rv_from_start = self._last_sync_resource_version not in ("", "0")
                watcher = self._start_watch(ctx)
                if watcher is None:
                    continue
            events = _Events(self, self._store, self._set_last_sync_resource_version, propagate_rv_from_start)
            try:
                events.handle(ctx, start, watcher, resync)
            except Exception as err:
                # The server may end a watch with any error. The response to every error is a new watch or a new list.
                if ctx.err() is not None or not self._may_go_on_after(err):
                    return
                self._pause(ctx)
            finally:
                watcher.stop()
            watcher = None

    def _start_watch(self, ctx: golang.Context) -> watch.Interface[Any] | None:
        """Start a watch where the last one ended.

        Return None, after a pause, if the attempt failed and can be repeated.
        """
        options = metav1.ListOptions(
            watch=True,
            resource_version=self._last_sync_resource_version,
            timeout_seconds=self._watch_timeout(),
            allow_watch_bookmarks=True,
        )
        ctx.raise_if_done()
        try:
            return self._lister_watcher.watch(ctx, options)
        except (OSError, apierrors.StatusError) as err:
            if ctx.err() is not None or not is_watch_error_retriable(err):
                raise
            about = {"reflector": self.name, "type": self.type_description}
            klog.v(4).info_s("Watch failed - backing off", **about, err=err)
        self._pause(ctx)
        return None

    def _may_go_on_after(self, err: Exception) -> bool:
        """Report whether the next watch can start, after a pause, at the version where this one failed.

        Otherwise a new round is necessary.
        """
        about = {"reflector": self.name, "type": self.type_description}
        if is_expired_error(err):
            # The resource version is kept: a list with this version returns data that is at least as new.
            klog.v(4).info_s("Watch closed", **about, err=err)
            return False
        if apierrors.is_too_many_requests(err):
            klog.v(2).info_s("Watch returned 429 - backing off", **about)
            return True
        klog.warning_s("Watch ended with error", **about, err=err)
        return False

    def _list(self, ctx: golang.Context) -> None:
        """Replace the store's objects with a new list, or raise the API server's error."""
        resource_version = self._relist_resource_version()
        listed = self._get_list(ctx, resource_version)
        page = listed.page
        if resource_version == "0" and listed.paginated:
            self._paginated_result = True
        self._is_last_sync_resource_version_unavailable = False
        self._store.replace([*page.items, *self._kept(page.undecodable)], page.metadata.resource_version)
        self._set_last_sync_resource_version(page.metadata.resource_version)

    def _kept(self, undecodable: Iterable[watch.Undecodable]) -> list[Any]:
        """Return the substitutes for objects that exist but can no longer be decoded.

        An outdated object is better than one that the kubelet considers deleted.
        """
        found = ((which, self._store.get_by_key(which.key)) for which in undecodable)
        return [obj for which, known in found if (obj := _substitute(known, which)) is not None]

    def _get_list(self, ctx: golang.Context, resource_version: str) -> pager.PagedList[Any]:
        lister = pager.ListPager(self._lister_watcher.list, self._page_size(resource_version))
        try:
            return lister.list(ctx, metav1.ListOptions(resource_version=resource_version))
        except apierrors.StatusError as err:
            if not is_expired_error(err) and not apierrors.is_too_large_resource_version(err):
                raise
        # The second attempt follows at once and does not ask for a specific version.
        self._is_last_sync_resource_version_unavailable = True
        return lister.list(ctx, metav1.ListOptions(resource_version=self._relist_resource_version()))

    def _page_size(self, resource_version: str) -> int:
        """Return the page size for a list with this resource version.

        The server can answer a list with a specific version from its watch cache, but only if the list is not paged. A
        page size of 0 turns paging off.
        """
        if self.watch_list_page_size is not None:
            return self.watch_list_page_size
        return 0 if resource_version not in ("", "0") and not self._paginated_result else pager.DEFAULT_PAGE_SIZE

    def _watch_list(self, ctx: golang.Context) -> watch.Interface[Any]:
        """Replace the store's objects with the initial events of a watch, and return that watch, which continues.

        Raise the API server's error if another attempt would not help, and ctx.err() once ctx is done.
        """
        while True:
            resource_version = ""
            temporary_store = new_store(deletion_handling_meta_namespace_key_func)

            def remember(rv: str) -> None:
                nonlocal resource_version
                resource_version = rv

            try:
                start = self._clock.monotonic()
                watcher = self._start_watch_list(ctx)
                events = _Events(self, temporary_store, remember, propagate_rv_from_start=False)
                if not events.handle_initial(ctx, start, watcher):
                    # DIVERGES (safer): the reflector pauses before it restarts a watch that ended before it had sent
                    # all objects.
                    # Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watchList: the Go kubelet restarts the
                    # watch at once.
                    # Why: a server that ends each of its watches would receive requests without a pause.
                    # Test: reflector_test.py:test_a_watch_list_that_ends_early_is_followed_by_a_pause
                    self._pause(ctx)
                    continue
            except (OSError, apierrors.StatusError) as err:
                if not self._recover_watch_list(ctx, err):
                    raise
                continue
            self._is_last_sync_resource_version_unavailable = False
            try:
                self._store.replace(temporary_store.list(), resource_version)
            except BaseException:
                watcher.stop()
                raise
            self._set_last_sync_resource_version(resource_version)
            return watcher

    def _start_watch_list(self, ctx: golang.Context) -> watch.Interface[Any]:
        ctx.raise_if_done()
        options = metav1.ListOptions(
            watch=True,
            resource_version=self._rewatch_resource_version(),
            resource_version_match="NotOlderThan",
            timeout_seconds=self._watch_timeout(),
            allow_watch_bookmarks=True,
            send_initial_events=True,
        )
        return self._lister_watcher.watch(ctx, options)

    def _recover_watch_list(self, ctx: golang.Context, err: Exception) -> bool:
        """Prepare another attempt, and return whether it may succeed."""
        if ctx.err() is not None:
            return False
        if is_watch_error_retriable(err):
            about = {"reflector": self.name, "type": self.type_description}
            klog.v(2).info_s("watch-list failed - backing off", **about, err=err)
            self._pause(ctx)
            return True
        # DIVERGES (safer): the reflector lists the objects if the server reports even a watch without a version as
        # expired.
        # Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watchList: the Go kubelet repeats the watch
        # without a pause.
        # Why: the server would be flooded with requests, and the kubelet would never receive its objects.
        # Test: reflector_test.py:test_a_server_that_has_no_version_at_all_is_listed
        if self._is_last_sync_resource_version_unavailable or not (
            is_expired_error(err) or apierrors.is_too_large_resource_version(err)
        ):
            return False
        self._is_last_sync_resource_version_unavailable = True
        return True

    def _watch_timeout(self) -> int:
        return int(random.uniform(self._min_watch_timeout, 2 * self._min_watch_timeout))

    def _pause(self, ctx: golang.Context) -> None:
        """Wait for the next backoff delay, or until ctx is done."""
        wait.sleep(ctx, self._delay(), self._clock)

    def _set_last_sync_resource_version(self, resource_version: str) -> None:
        self._last_sync_resource_version = resource_version

    def _relist_resource_version(self) -> str:
        """Return the resource version that a list asks for.

        The first list asks for any version ("0"), which the server can answer from its watch cache. Later lists ask for
        data at least as new as the store's. If the server does not know that version, the list asks for the newest data
        in etcd ("").
        """
        if self._is_last_sync_resource_version_unavailable:
            return ""
        return self._last_sync_resource_version or "0"

    def _rewatch_resource_version(self) -> str:
        """Return the resource version that a watch list asks for: the store's, or "" for the newest data in etcd."""
        return "" if self._is_last_sync_resource_version_unavailable else self._last_sync_resource_version


class _Resync:
    """Ask the store to resync, one period after each previous resync.

    The timer is one more case of the select on the watch, where Go has a goroutine.
    """

    def __init__(self, reflector: Reflector) -> None:
        self._reflector = reflector
        self._period = reflector._resync_period
        self._timer = reflector._clock.new_timer(self._period) if self._period > 0 else None

    @property
    def channel(self) -> golang.Channel[datetime] | None:
        return self._timer.channel if self._timer is not None else None

    def resync(self) -> None:
        """Resync the store if the reflector should, and restart the timer."""
        if self._reflector.should_resync():
            klog.v(4).info_s("Forcing resync", reflector=self._reflector.name)
            self._reflector._store.resync()
        if self._timer is not None:
            self._timer.reset(self._period)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.stop()


@dataclass
class _Events:
    """Apply the events of one watch to a store.

    Go: handleAnyWatch
    """

    reflector: Reflector
    store: ReflectorStore[Any]
    set_resource_version: Callable[[str], None]
    # `propagate_rv_from_start` is True if each event is newer than all events before it. Otherwise that holds only from
    # the first event that is not ADDED.
    propagate_rv_from_start: bool
    count: int = 0
    initial_events_ended: bool = False

    def handle(self, ctx: golang.Context, start: float, watcher: watch.Interface[Any], resync: _Resync) -> None:
        """Apply events until the watch ends.

        Raise the error that ended the watch, or ctx.err(). The caller must stop the watch.
        """
        results, done = watcher.result_chan(), ctx.done()
        while True:
            event = golang.select(results, done, resync.channel).took(results)
            if ctx.err() is not None or (event and not event.ok):
                break
            if event:
                self._apply(event.value)
            else:
                resync.resync()
        self._finish(ctx, start)

    def handle_initial(self, ctx: golang.Context, start: float, watcher: watch.Interface[Any]) -> bool:
        """Apply the initial events up to the bookmark that ends them, and return whether the bookmark arrived.

        If it did not, the watch is stopped.
        """
        results, done = watcher.result_chan(), ctx.done()
        warning = _InitialEventsEndWarning(self.reflector, start)
        try:
            while not self.initial_events_ended:
                event = golang.select(results, done, warning.channel).took(results)
                if ctx.err() is not None or (event and not event.ok):
                    self._finish(ctx, start)
                    return False
                if event:
                    self._apply(event.value)
                    warning.observe_event()
                else:
                    warning.warn_if_expired()
        finally:
            warning.stop()
            if not self.initial_events_ended:
                watcher.stop()
        klog.v(4).info_s(
            "Exiting watch because received the bookmark that marks the end of initial events stream",
            reflector=self.reflector.name,
            totalItems=self.count,
            duration=self.reflector._clock.monotonic() - start,
        )
        return True

    def _finish(self, ctx: golang.Context, start: float) -> None:
        """Raise the error that fits a watch without further events, or log its normal end."""
        ctx.raise_if_done()
        seconds = self.reflector._clock.monotonic() - start
        if self.count == 0 and seconds < _SHORT_WATCH:
            raise VeryShortWatchError(self.reflector.name)
        if self.count == 0 and seconds >= _SILENT_WATCH:
            raise SilentWatchError(self.reflector.name, seconds)
        about = {"reflector": self.reflector.name, "type": self.reflector.type_description}
        klog.v(4).info_s("Watch close", **about, totalItems=self.count)

    def _apply(self, event: watch.Event[Any]) -> None:
        """Apply one event to the store.

        Raise the error that an ERROR event carries. A problem with a single object is logged, and the other events are
        applied.
        """
        if event.type == watch.ERROR:
            raise _error_of(event.object)
        if isinstance(event.object, watch.Undecodable):
            self._apply_undecodable(event.type, event.object)
            return
        name, expected = self.reflector.name, self.reflector._expected_type
        if expected is not None and type(event.object) is not expected:
            kinds = {"expectedType": expected.__name__, "actualType": type(event.object).__name__}
            klog.error_s(None, "Unexpected watch event object type", reflector=name, **kinds)
            return
        metadata = getattr(event.object, "metadata", None)
        if metadata is None:
            klog.error_s(None, "Unable to understand watch event", reflector=name, event=event)
            return
        self._change_store(event, metadata)
        if event.type != watch.ADDED:
            self.propagate_rv_from_start = True
        if self.propagate_rv_from_start:
            self.set_resource_version(metadata.resource_version)
        self.count += 1

    def _apply_undecodable(self, event_type: str, which: watch.Undecodable) -> None:
        """Keep the known version of an object that cannot be decoded, until a DELETED event arrives for it."""
        known = self.reflector._store.get_by_key(which.key)
        obj = _substitute(known, which)
        if event_type == watch.DELETED or obj is None:
            if known is not None:
                self.store.delete(known)
        else:
            self.store.add(obj)
        if self.propagate_rv_from_start and which.resource_version:
            self.set_resource_version(which.resource_version)
        self.count += 1

    def _change_store(self, event: watch.Event[Any], metadata: metav1.ObjectMeta) -> None:
        """Change the store as the event requires.

        Raise MemoryError; every other error is logged.
        """
        name = self.reflector.name
        try:
            match event.type:
                case watch.ADDED:
                    self.store.add(event.object)
                case watch.MODIFIED:
                    self.store.update(event.object)
                case watch.DELETED:
                    self.store.delete(event.object)
                case watch.BOOKMARK:
                    if metadata.annotations.get(metav1.INITIAL_EVENTS_ANNOTATION_KEY) == "true":
                        self.initial_events_ended = True
                case _:
                    klog.error_s(None, "Unknown watch event", reflector=name, event=event)
        except MemoryError:
            raise  # The object is not at fault, and the next list contains it again.
        except Exception as err:  # One object that the store refuses must not block the others.
            trace = klog.stacktrace(err)
            what = f"Unable to apply {event.type} watch event to store"
            klog.error_s(err, what, reflector=name, object=klog.kobj(event.object), stacktrace=trace)


class _InitialEventsEndWarning:
    """Log a warning while a watch list neither returns objects nor ends."""

    def __init__(self, reflector: Reflector, start: float) -> None:
        self._name = reflector.name
        self._clock = reflector._clock
        self._start = start
        self._last_event: float | None = None
        self._ticker = self._clock.new_ticker(_INITIAL_EVENTS_END_WARNING)

    @property
    def channel(self) -> golang.Channel[datetime]:
        return self._ticker.channel

    def observe_event(self) -> None:
        self._last_event = self._clock.monotonic()

    def warn_if_expired(self) -> None:
        """Log a warning if no event has arrived for a while.

        The caller calls this at each tick of the channel.
        """
        now = self._clock.monotonic()
        if self._last_event is None:
            err = (
                "awaiting required bookmark event for initial events stream, "
                f"no events received for {now - self._start}s"
            )
        elif (elapsed := now - self._last_event) >= _INITIAL_EVENTS_END_WARNING:
            err = (
                "hasn't received required bookmark event marking the end of initial events stream, "
                f"received last event {elapsed}s ago"
            )
        else:
            return
        klog.warning_s("Event bookmark expired", err=f"{self._name}: {err}")

    def stop(self) -> None:
        self._ticker.stop()


def _substitute(known: Any | None, which: watch.Undecodable) -> Any | None:
    """Return what the store must hold in place of an object that cannot be decoded, or None for nothing.

    The substitute is the known object with the version, the deletion and the phase of the object that cannot be
    decoded. If the store does not know the pod in full, or the UID has changed, the substitute is a PartialPod with the
    fields that can be decoded. Such a pod may be running: a restart of the kubelet must not stop it, and when the pod
    is deleted, the kubelet must finish its termination.
    """
    partial = which.partial
    if partial is None:
        return known
    metadata: metav1.ObjectMeta = partial.metadata
    if known is None or isinstance(known, v1.PartialPod) or metadata.uid not in ("", known.metadata.uid):
        return v1.PartialPod.of(partial) if isinstance(partial, v1.Pod) and metadata.uid else None
    obj = codec.deepcopy(known)
    obj.metadata.resource_version = metadata.resource_version
    if metadata.deletion_timestamp is not None:
        obj.metadata.deletion_timestamp = metadata.deletion_timestamp
        obj.metadata.deletion_grace_period_seconds = metadata.deletion_grace_period_seconds
    if phase := getattr(getattr(partial, "status", None), "phase", ""):
        obj.status.phase = phase
    return obj


def is_expired_error(err: BaseException) -> bool:
    """Report whether the server no longer has the requested resource version."""
    return apierrors.is_resource_expired(err) or apierrors.is_gone(err)


def is_watch_error_retriable(err: BaseException) -> bool:
    """Report whether the server is only unreachable or busy.

    In this case a watch can most likely continue where it ended.
    """
    return utilnet.is_connection_refused(err) or apierrors.is_too_many_requests(err)


def _error_of(obj: object) -> Exception:
    """Return the error that an ERROR event carries."""
    return apierrors.from_status(obj) if isinstance(obj, metav1.Status) else ValueError(f"unexpected object: {obj!r}")
