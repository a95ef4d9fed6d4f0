"""Keeps a store as the API server has the objects of one kind.

Go: k8s.io/client-go/tools/cache/reflector.go

One round of list_and_watch: get all objects, replace the store's with them, then apply one watch after the other,
each from the resource version at which the last one ended, until one fails in a way that asks for a new round.
All objects come as the beginning of a watch ("watch list"), which ends with a marked bookmark and goes on as the
first watch; or, from a server that does not do that, or with the gate WatchListClient off, as a list in pages.
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

# Watches are asked to end after a random time from this to twice this, so that they do not all come back at once.
_MIN_WATCH_TIMEOUT = 300.0

# About one attempt per 45 s against a server that stays away.
_BACKOFF = wait.Backoff(duration=0.8, factor=2.0, jitter=1.0, steps=38, cap=30.0)
_BACKOFF_RESET = 120.0

# A watch that ended sooner, without an event, is a fault; to begin it again at once would be a busy loop.
_SHORT_WATCH = 1.0
# An API server sends a bookmark each minute, unless it has not come as far as the version that the watch began at.
_SILENT_WATCH = 120.0

# How often a watch list that does not come to its end is worth a warning.
_INITIAL_EVENTS_END_WARNING = 10.0


class ReflectorStore(Protocol[T_contra]):
    """What a reflector needs of a store. Objects that it is given are its own."""

    def get_by_key(self, key: str) -> Any | None:
        """The newest that it has of an object."""
        ...

    def add(self, obj: T_contra) -> None: ...

    def update(self, obj: T_contra) -> None: ...

    def delete(self, obj: T_contra) -> None: ...

    def replace(self, objs: Iterable[T_contra], resource_version: str) -> None: ...

    def resync(self) -> None: ...


class VeryShortWatchError(Exception):
    """A watch ended within a second without an event."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"very short watch: {name}: Unexpected watch close - watch lasted less than a second and no items received"
        )


class SilentWatchError(Exception):
    """A watch has lasted for minutes, and brought neither an event nor a bookmark.

    DIVERGES (safer): after a watch without any event or bookmark for minutes, all objects are listed anew.
    Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watch: the next watch goes on from the version that the
    reflector has.
    Why: a server that was given back an older state of its storage tells nothing of what is later, until its version
    has caught up.
    Test: reflector_test.py:test_a_server_that_was_given_back_an_older_state_is_listed
    """

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"silent watch: {name}: no event and no bookmark in {seconds:.0f}s")


WatchErrorHandler = Callable[["Reflector", Exception], object]
"""Told of each error that ends a round, before the pause; must return soon."""


def default_watch_error_handler(reflector: Reflector, err: Exception) -> None:
    """Log the error, as loud as it deserves."""
    about = {"reflector": reflector.name, "type": reflector.type_description}
    if is_expired_error(err):
        klog.v(4).info_s("Watch closed", **about, err=err)
    else:
        klog.error_s(err, "Failed to watch", **about)


class Reflector:
    """Runs in the thread that calls run; last_sync_resource_version may be read from any."""

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
        """Objects of another than the expected type are left out; None expects nothing.

        With a resync period (seconds; 0 is never) the store is asked that often to report its objects again, if
        should_resync says so.
        """
        self.type_description = expected_type.__name__ if expected_type is not None else "<unspecified>"
        self.name = name or f"reflector-{self.type_description}"
        self.should_resync: Callable[[], bool] = lambda: True
        self.watch_error_handler: WatchErrorHandler = default_watch_error_handler
        # Objects per page of a list; None leaves that to the reflector.
        self.watch_list_page_size: int | None = None
        self._lister_watcher = lister_watcher
        self._expected_type = expected_type
        self._store = store
        self._resync_period = resync_period
        self._clock: clock_.Clock = clock or clock_.RealClock()
        self._min_watch_timeout = min_watch_timeout
        self._delay = (backoff or _BACKOFF).delay_with_reset(self._clock, _BACKOFF_RESET)
        # Whether the server pages even lists that it may answer from its cache: then it has none.
        self._paginated_result = False
        self._last_sync_resource_version = ""
        # Whether the server no longer, or not yet, knows that version.
        self._is_last_sync_resource_version_unavailable = False
        self._use_watch_list = features.feature_gate.enabled(
            features.WATCH_LIST_CLIENT
        ) and not watchlist.does_client_not_support_watch_list_semantics(lister_watcher)

    @property
    def last_sync_resource_version(self) -> str:
        """The version up to which the store has everything; "" before the first round."""
        return self._last_sync_resource_version

    def run(self, ctx: golang.Context) -> None:
        """Keep the store up to date until ctx is done."""
        about = {"type": self.type_description, "resyncPeriod": self._resync_period, "reflector": self.name}
        klog.v(3).info_s("Starting reflector", **about)
        while ctx.err() is None:
            try:
                self.list_and_watch(ctx)
            except Exception as err:  # whatever fails, the store must not stay behind for ever
                with contain("Unable to handle the error of a watch", ctx, **about):
                    self.watch_error_handler(self, err)
            self._pause(ctx)
        klog.v(3).info_s("Stopping reflector", **about)

    def list_and_watch(self, ctx: golang.Context) -> None:
        """One round; returns when a new one is due, or ctx is done. Raises what kept it from watching."""
        klog.v(3).info_s("Listing and watching", type=self.type_description, reflector=self.name)
        try:
            watcher = self._watch_list_or_list(ctx)
            klog.v(2).info_s("Caches populated", type=self.type_description, reflector=self.name)
            self._watch_with_resync(ctx, watcher)
        except Exception:
            # Who ends the context may see any error from the call that this cuts short.
            if ctx.err() is None:
                raise

    def _watch_list_or_list(self, ctx: golang.Context) -> watch.Interface[Any] | None:
        """Fill the store; returns the watch that goes on from there, if there is one already."""
        if self._use_watch_list:
            try:
                return self._watch_list(ctx)
            except Exception as err:
                # Whatever a server answers that does not know this mode; the list tells if more is wrong with it.
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
        """Watch again and again from where the last watch ended, `watcher` being the first if it is given."""
        while True:
            start = self._clock.monotonic()
            propagate_rv_from_start = True
            if watcher is None:
                # From no version in particular, all objects come first, in no order of versions.
                propagate_rv_from_start = self._last_sync_resource_version not in ("", "0")
                watcher = self._start_watch(ctx)
                if watcher is None:
                    continue
            events = _Events(self, self._store, self._set_last_sync_resource_version, propagate_rv_from_start)
            try:
                events.handle(ctx, start, watcher, resync)
            except Exception as err:
                # The server may end a watch with any error; a new watch or a new list is the answer to all of them.
                if ctx.err() is not None or not self._may_go_on_after(err):
                    return
                self._pause(ctx)
            finally:
                watcher.stop()
            watcher = None

    def _start_watch(self, ctx: golang.Context) -> watch.Interface[Any] | None:
        """Begin a watch where the last one ended; None after a pause, if that failed and can be tried again."""
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
        """Whether the next watch can begin where this one failed, after a pause; otherwise a new round must."""
        about = {"reflector": self.name, "type": self.type_description}
        if is_expired_error(err):
            # The version stays: a list from it gives what is at least as new.
            klog.v(4).info_s("Watch closed", **about, err=err)
            return False
        if apierrors.is_too_many_requests(err):
            klog.v(2).info_s("Watch returned 429 - backing off", **about)
            return True
        klog.warning_s("Watch ended with error", **about, err=err)
        return False

    def _list(self, ctx: golang.Context) -> None:
        """Replace the store's objects by a list; raises what the API answers."""
        resource_version = self._relist_resource_version()
        listed = self._get_list(ctx, resource_version)
        page = listed.page
        if resource_version == "0" and listed.paginated:
            self._paginated_result = True
        self._is_last_sync_resource_version_unavailable = False
        self._store.replace([*page.items, *self._kept(page.undecodable)], page.metadata.resource_version)
        self._set_last_sync_resource_version(page.metadata.resource_version)

    def _kept(self, undecodable: Iterable[watch.Undecodable]) -> list[Any]:
        """What stands for objects that exist and cannot be read any more: better old than taken for gone."""
        found = ((which, self._store.get_by_key(which.key)) for which in undecodable)
        return [obj for which, known in found if (obj := _substitute(known, which)) is not None]

    def _get_list(self, ctx: golang.Context, resource_version: str) -> pager.PagedList[Any]:
        lister = pager.ListPager(self._lister_watcher.list, self._page_size(resource_version))
        try:
            return lister.list(ctx, metav1.ListOptions(resource_version=resource_version))
        except apierrors.StatusError as err:
            if not is_expired_error(err) and not apierrors.is_too_large_resource_version(err):
                raise
        # Once more, at once, without asking for that version.
        self._is_last_sync_resource_version_unavailable = True
        return lister.list(ctx, metav1.ListOptions(resource_version=self._relist_resource_version()))

    def _page_size(self, resource_version: str) -> int:
        """With a version that it has seen, a list can come from the server's cache, but only if it is not paged."""
        if self.watch_list_page_size is not None:
            return self.watch_list_page_size
        return 0 if resource_version not in ("", "0") and not self._paginated_result else pager.DEFAULT_PAGE_SIZE

    def _watch_list(self, ctx: golang.Context) -> watch.Interface[Any]:
        """Replace the store's objects by those that a watch begins with, and return the watch, which goes on.

        Raises what the API answers, if trying again would not help, and ctx.err().
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
                    # DIVERGES (safer): a watch that ends before it has sent all objects is begun again after a pause.
                    # Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watchList: it is begun again at
                    # once.
                    # Why: a server that ends each of its watches would be asked without a pause.
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
        """Make ready for another attempt; returns whether that may help."""
        if ctx.err() is not None:
            return False
        if is_watch_error_retriable(err):
            about = {"reflector": self.name, "type": self.type_description}
            klog.v(2).info_s("watch-list failed - backing off", **about, err=err)
            self._pause(ctx)
            return True
        # DIVERGES (safer): if the server calls even a watch from no particular version expired, the objects are listed.
        # Go: k8s.io/client-go/tools/cache/reflector.go, (*Reflector).watchList: it is asked again and again, without a
        # pause.
        # Why: the server would be flooded, and the kubelet never learn of its objects.
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
        """Wait for the next pause of the back-off, or until ctx is done."""
        wait.sleep(ctx, self._delay(), self._clock)

    def _set_last_sync_resource_version(self, resource_version: str) -> None:
        self._last_sync_resource_version = resource_version

    def _relist_resource_version(self) -> str:
        """What a list asks for: at first any version, so from the server's cache; then what we have, or newer;
        or, if the server does not know that, what the storage has now."""
        if self._is_last_sync_resource_version_unavailable:
            return ""
        return self._last_sync_resource_version or "0"

    def _rewatch_resource_version(self) -> str:
        """What a watch list asks for: what we have, or newer; or what the storage has now."""
        return "" if self._is_last_sync_resource_version_unavailable else self._last_sync_resource_version


class _Resync:
    """Asks the store to resync, each period after the last time.

    This is one more case of the select on the watch, where Go has a goroutine.
    """

    def __init__(self, reflector: Reflector) -> None:
        self._reflector = reflector
        self._period = reflector._resync_period
        self._timer = reflector._clock.new_timer(self._period) if self._period > 0 else None

    @property
    def channel(self) -> golang.Channel[datetime] | None:
        return self._timer.channel if self._timer is not None else None

    def resync(self) -> None:
        """Do what the channel asks for."""
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
    """Applies the events of one watch to a store. Go: handleAnyWatch"""

    reflector: Reflector
    store: ReflectorStore[Any]
    set_resource_version: Callable[[str], None]
    # Whether every event is newer than all before; if not, that holds from the first which is not ADDED.
    propagate_rv_from_start: bool
    count: int = 0
    initial_events_ended: bool = False

    def handle(self, ctx: golang.Context, start: float, watcher: watch.Interface[Any], resync: _Resync) -> None:
        """Return when the watch ends; raises the error that ended it, and ctx.err(). Leaves the watch to stop."""
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
        """As handle, until the bookmark that ends the existing objects; returns whether that came.

        The watch is stopped if not.
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
        """What becomes of a watch that gives no more events."""
        ctx.raise_if_done()
        seconds = self.reflector._clock.monotonic() - start
        if self.count == 0 and seconds < _SHORT_WATCH:
            raise VeryShortWatchError(self.reflector.name)
        if self.count == 0 and seconds >= _SILENT_WATCH:
            raise SilentWatchError(self.reflector.name, seconds)
        about = {"reflector": self.reflector.name, "type": self.reflector.type_description}
        klog.v(4).info_s("Watch close", **about, totalItems=self.count)

    def _apply(self, event: watch.Event[Any]) -> None:
        """Raises the error that the event is; a fault of one object is logged, and the others go on."""
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
        """The store keeps what it had of an object that cannot be read, until that is deleted."""
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
        """Raises MemoryError."""
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
            raise  # it is no fault of the object, which comes again with a new list
        except Exception as err:  # one object that the store refuses must not keep the others out
            trace = klog.stacktrace(err)
            what = f"Unable to apply {event.type} watch event to store"
            klog.error_s(err, what, reflector=name, object=klog.kobj(event.object), stacktrace=trace)


class _InitialEventsEndWarning:
    """Warns while a watch list neither brings objects nor comes to its end."""

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
        """To be called at each tick of the channel."""
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
    """What the store shall have in the place of an object that cannot be read, None for nothing.

    That is the known object with the version, the deletion and the phase of the unreadable one. Of a pod that is not
    known in full, or no longer the same, it is what can be read: the pod may be running, which must not end because
    the kubelet was started anew, and when the pod is being deleted the kubelet must see to its end.
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
    """Whether the server no longer has the resource version asked for."""
    return apierrors.is_resource_expired(err) or apierrors.is_gone(err)


def is_watch_error_retriable(err: BaseException) -> bool:
    """Whether the server is only away or busy: then the watch can most likely go on where it ended."""
    return utilnet.is_connection_refused(err) or apierrors.is_too_many_requests(err)


def _error_of(obj: object) -> Exception:
    """The error that an ERROR event carries."""
    return apierrors.from_status(obj) if isinstance(obj, metav1.Status) else ValueError(f"unexpected object: {obj!r}")
