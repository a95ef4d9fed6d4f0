"""Wakes those who follow logs when there is something to read, or when the container has ended.

This file has no Go counterpart. In Go each follower asks the runtime after its container at each change.

DIVERGES (safer): all who follow logs share one inotify instance; without one, logs are looked at once a second.
Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: makes one for each, and fails if there is none to be had.
Why: on most machines a user may have 128.
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

# How often a followed log, and its container, are looked at when nothing tells of a change, in seconds.
LOG_FORCE_CHECK_PERIOD = 1.0
# How often all followers together look whether their logs have more.
MAX_LOOKS_PER_SECOND = 500

_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_MODIFY
    | inotify_c.InotifyConstants.IN_CLOSE_WRITE
    | inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_MOVED_TO
)


@dataclass(slots=True)
class _Container:
    """A container that somebody follows: who does, when one of them last asked after it, and what he heard."""

    followers: set[Follower] = field(default_factory=set)
    asked_at: float = float("-inf")
    running: bool = True


# Of the runtime its identity: it need not be hashable.
_Key = tuple[int, str]


class _Shared:
    """What all followers of this process have in common: one inotify instance with its thread, while there are any."""

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.Lock()
        self._followers = 0
        self._inotify: inotify.Inotify | None = None
        self._containers: dict[_Key, _Container] = {}

    def enter(self, key: _Key, directory: str, callback: Follower) -> inotify_c.WatchDescriptor | None:
        """Returns None if the directory cannot be watched."""
        with self._lock:
            self._followers += 1
            self._containers.setdefault(key, _Container()).followers.add(callback)
            try:
                return self._watch_locked(directory, callback)
            except OSError as err:
                # No more watches, or threads. The log is then looked at every second, as it would be anyway.
                klog.error_s(err, "Failed to watch directory of a log that is followed", path=directory)
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
        """Seconds between two looks of one follower at its log."""
        return self._followers / MAX_LOOKS_PER_SECOND

    def answer(self, key: _Key, not_before: float) -> bool | None:
        """Whether the container runs, as far as is known; None for the one who is to ask, as nobody has since then."""
        with self._lock:
            known = self._containers[key]
            if not known.running or known.asked_at >= not_before:
                return known.running
            known.asked_at = monotonic()
            return None

    def note_end(self, key: _Key) -> None:
        """The container has ended: all who follow it hear of it."""
        with self._lock:
            known = self._containers[key]
            known.running = False
            followers = list(known.followers)
        for each in followers:
            each.wake()


_shared = _Shared()


class Follower:
    """One who follows one log: a context manager, for one thread."""

    def __init__(self, path: str, container_id: str, runtime_service: internalapi.RuntimeService) -> None:
        self._directory, name = os.path.split(path)
        self._name = os.fsencode(name)
        self._container_id = container_id
        self._runtime_service = runtime_service
        self._key = (id(runtime_service), container_id)
        self._watch: inotify_c.WatchDescriptor | None = None
        self._changed: golang.Channel[None] = golang.Channel(1)
        # When the log was last closed by who wrote to it: at the container's end, or at a rotation. Set by inotify's
        # thread.
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
        """Wait for a change, or a second; returns whether the container runs still, so that more may come.

        Raises golang.ContextError and crierror.RemoteError.
        """
        if not self._is_running_lately(ctx):
            return False
        if golang.select(ctx.done(), self._changed, timeout=LOG_FORCE_CHECK_PERIOD).took(ctx.done()):
            raise ctx.err() or golang.Canceled()
        self._leave_turns(ctx)
        return True

    def _leave_turns(self, ctx: golang.Context) -> None:
        """Wait until so much time has passed that the other followers may have looked too.

        What comes meanwhile is read with the rest.
        """
        if (pause := self._next_look - monotonic()) > 0 and ctx.wait(pause):
            raise ctx.err() or golang.Canceled()
        self._next_look = monotonic() + _shared.pause()

    def _is_running_lately(self, ctx: golang.Context) -> bool:
        """One of a container's followers asks, at most once a second unless the log was closed."""
        running = _shared.answer(self._key, max(monotonic() - LOG_FORCE_CHECK_PERIOD, self._closed_at))
        if running is None:
            running = is_container_running(ctx, self._container_id, self._runtime_service)
            if not running:
                _shared.note_end(self._key)
        return running

    def wake(self) -> None:
        """Have `wait` return. From any thread."""
        self._changed.try_send(None)

    # Called by inotify's thread.

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
    """Raises crierror.RemoteError, but not if the runtime is away, which the container need not be."""
    try:
        response = runtime_service.container_status(ctx, container_id, False)
    except crierror.RemoteError as err:
        if err.code is grpc.StatusCode.UNAVAILABLE:
            return True
        # DIVERGES (fault of Go): the log of a container that is removed while it is followed ends without an error.
        # Go: k8s.io/cri-client/pkg/logs/logs.go, isContainerRunning: returns the runtime's error.
        # Why: the client would find an error at the end of a log that is complete.
        # Test: followers_test.py:test_container_of_which_the_runtime_does_not_tell
        if err.code is grpc.StatusCode.NOT_FOUND:
            return False
        raise
    state = response.status.state
    if state != runtimeapi.CONTAINER_RUNNING:
        klog.v(5).info_s("Container is not running", containerId=container_id, state=state)
    return state == runtimeapi.CONTAINER_RUNNING
