"""Wake the followers of logs when there is something to read or the container has exited.

This file has no Go counterpart. In Go each follower requests the container's status from the runtime at each change.

DIVERGES (safer): all followers of logs share one inotify instance; without one, they check their logs once a second.
Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: the Go kubelet creates an instance for each follower, and fails if it
gets none.
Why: on most machines a user may have only 128 instances.
Test: followers_test.py:test_two_hundred_followers_share_one_inotify_instance,
followers_test.py:test_log_is_followed_without_inotify
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Self

import grpc
from cri_api.v1 import api_pb2 as runtimeapi
from watchdog.observers import inotify_c

from kubelet.cri import apis as internalapi
from kubelet.cri import errors as crierror
from pkg import golang, klog
from pkg.util import inotify

# A follower checks its log and its container at least this often, in seconds, even without an event.
LOG_FORCE_CHECK_PERIOD = 1.0
# All followers together check their logs at most this often.
MAX_LOOKS_PER_SECOND = 500

_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_MODIFY
    | inotify_c.InotifyConstants.IN_CLOSE_WRITE
    | inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_MOVED_TO
)


@dataclass(slots=True)
class _Container:
    """Hold the followers of a container, the time of their last request for its status, and the response."""

    followers: set[Follower] = field(default_factory=set)
    asked_at: float = float("-inf")
    running: bool = True


# The key uses the identity of the runtime service, which need not be hashable.
_Key = tuple[int, str]


class _Shared:
    """Hold what all followers of this process share: one inotify instance with its thread while there are followers."""

    def __init__(self) -> None:
        # This lock guards the fields below.
        self._lock = threading.Lock()
        self._followers = 0
        self._inotify: inotify.Inotify | None = None
        self._containers: dict[_Key, _Container] = {}

    def enter(self, key: _Key, directory: str, callback: Follower) -> inotify_c.WatchDescriptor | None:
        """Add a follower; return None if its directory cannot be watched."""
        with self._lock:
            self._followers += 1
            self._containers.setdefault(key, _Container()).followers.add(callback)
            try:
                return self._watch_locked(directory, callback)
            except OSError as err:
                # No more watches or threads are available. The follower then checks its log every second, as it does
                # anyway.
                klog.error_s(err, "Failed to watch the directory of a followed log", path=directory)
                return None

    def _watch_locked(self, directory: str, callback: Follower) -> inotify_c.WatchDescriptor:
        if self._inotify is None:
            self._inotify = inotify.start("log-followers")
        callback_id = inotify_c.CallbackId(id(callback))
        return self._inotify.add_callback(os.fsencode(directory), _MASK, callback, callback_id)

    def leave(self, key: _Key, callback: Follower, watch: inotify_c.WatchDescriptor | None) -> None:
        with self._lock:
            if watch is not None and self._inotify is not None:
                self._inotify.remove_callbacks([(watch, inotify_c.CallbackId(id(callback)))])
            self._containers[key].followers.remove(callback)
            if not self._containers[key].followers:
                del self._containers[key]
            self._followers -= 1
            last = self._inotify if self._followers == 0 else None
            if last is not None:
                self._inotify = None
        if last is not None:
            last.stop()
            last.join()

    def pause(self) -> float:
        """Return the seconds between two checks by one follower."""
        return self._followers / MAX_LOOKS_PER_SECOND

    def answer(self, key: _Key, not_before: float) -> bool | None:
        """Report whether the container runs, or return None if the caller must request its status.

        The caller must do so if no follower has requested it since `not_before`.
        """
        with self._lock:
            known = self._containers[key]
            if not known.running or known.asked_at >= not_before:
                return known.running
            known.asked_at = monotonic()
            return None

    def note_end(self, key: _Key) -> None:
        """Record that the container has exited, and wake all its followers."""
        with self._lock:
            known = self._containers[key]
            known.running = False
            followers = list(known.followers)
        for each in followers:
            each.wake()


_shared = _Shared()


class Follower:
    """Follow one log. The object is a context manager for one thread."""

    def __init__(self, path: str, container_id: str, runtime_service: internalapi.RuntimeService) -> None:
        self._directory, name = os.path.split(path)
        self._name = os.fsencode(name)
        self._container_id = container_id
        self._runtime_service = runtime_service
        self._key = (id(runtime_service), container_id)
        self._watch: inotify_c.WatchDescriptor | None = None
        self._changed: golang.Channel[None] = golang.Channel(1)
        # The log was last closed by its writer at this time, which is the container's exit or a rotation. inotify's
        # thread sets the field.
        self._closed_at = float("-inf")
        self._next_look = float("-inf")

    def __enter__(self) -> Self:
        self._watch = _shared.enter(self._key, self._directory, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        _shared.leave(self._key, self, self._watch)

    def wait(self, ctx: golang.Context) -> bool:
        """Wait for a change, but at most a second; report whether the container still runs, so that more may follow.

        Raise golang.ContextError or crierror.RemoteError.
        """
        if not self._is_running_lately(ctx):
            return False
        if golang.select(ctx.done(), self._changed, timeout=LOG_FORCE_CHECK_PERIOD).took(ctx.done()):
            raise ctx.err() or golang.Canceled()
        self._leave_turns(ctx)
        return True

    def _leave_turns(self, ctx: golang.Context) -> None:
        """Wait until the other followers have had time for their checks.

        New lines that arrive meanwhile are read together with the next ones.
        """
        if (pause := self._next_look - monotonic()) > 0 and ctx.wait(pause):
            raise ctx.err() or golang.Canceled()
        self._next_look = monotonic() + _shared.pause()

    def _is_running_lately(self, ctx: golang.Context) -> bool:
        """Report whether the container runs, according to a recent status.

        One of the container's followers requests the status, at most once a second unless the log was closed.
        """
        running = _shared.answer(self._key, max(monotonic() - LOG_FORCE_CHECK_PERIOD, self._closed_at))
        if running is None:
            running = is_container_running(ctx, self._container_id, self._runtime_service)
            if not running:
                _shared.note_end(self._key)
        return running

    def wake(self) -> None:
        """Make `wait` return. Any thread may call this method."""
        self._changed.try_send(None)

    # inotify's thread calls the methods below.

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        if event.name != self._name:
            return
        if event.is_close_write:
            self._closed_at = monotonic()
        self.wake()

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        self.wake()

    def on_queue_overflow(self) -> None:
        self.wake()


def is_container_running(ctx: golang.Context, container_id: str, runtime_service: internalapi.RuntimeService) -> bool:
    """Report whether the container runs; assume so while the runtime is unavailable.

    Raise crierror.RemoteError for any other error.
    """
    try:
        response = runtime_service.container_status(ctx, container_id, False)
    except crierror.RemoteError as err:
        if err.code is grpc.StatusCode.UNAVAILABLE:
            return True
        # DIVERGES (fault of Go): if a container is removed while its log is followed, the log ends without an error.
        # Go: k8s.io/cri-client/pkg/logs/logs.go, isContainerRunning: the Go kubelet returns the runtime's error.
        # Why: the client would find an error at the end of a complete log.
        # Test: followers_test.py:test_container_of_which_the_runtime_does_not_tell
        if err.code is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    state = response.status.state
    if state != runtimeapi.CONTAINER_RUNNING:
        klog.v(5).info_s("Container is not running", containerId=container_id, state=state)
    return state == runtimeapi.CONTAINER_RUNNING
