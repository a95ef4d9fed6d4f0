"""Share one call among all callers that ask for the same thing at the same time.

Go: golang.org/x/sync/singleflight/singleflight.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from pkg import golang

_T = TypeVar("_T")

_BACKGROUND = golang.background()


@dataclass(slots=True)
class _Call(Generic[_T]):
    """Represent a call that one or more callers wait for."""

    # `askers` counts the callers that still want the result. The lock of all calls guards it.
    askers: int = 0
    done: golang.Channel[None] = field(default_factory=golang.Channel)
    results: list[_T] = field(default_factory=list)
    err: BaseException | None = None

    def run(self, fn: Callable[[], _T]) -> None:
        try:
            self.results.append(fn())
        except BaseException as err:  # `result` raises the error again for each waiting caller.
            self.err = err

    def wait(self, ctx: golang.Context) -> None:
        """Wait for the call to end. Raise golang.ContextError when ctx ends first."""
        if golang.select(self.done, ctx.done()).took(ctx.done()):
            ctx.raise_if_done()

    def result(self) -> _T:
        if self.err is not None:
            # Without this statement, each thread that raises the error would add its frames to the traceback.
            raise self.err.with_traceback(None)
        return self.results[0]

    def shared(self, lock: threading.Lock, lead: Callable[[], None] | None, ctx: golang.Context) -> _T:
        """Return the result to one caller, which `askers` already counts.

        The first caller passes `lead`, which makes the call. The error of a call refers to the frames of all threads
        that raised the error, and each of these frames refers to the call. So the call drops the error when the last
        caller leaves; otherwise all of these objects would stay until the garbage collector runs.
        """
        try:
            if lead is not None:
                lead()
            else:
                self.wait(ctx)
            return self.result()
        finally:
            with lock:
                self.askers -= 1
                if not self.askers:
                    self.err = None


@dataclass(slots=True)
class Group(Generic[_T]):
    """Share the result of a call among the callers that arrive while it runs. All methods are thread-safe."""

    # This lock guards `_calls` and the callers' counts.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _calls: dict[Hashable, _Call[_T]] = field(default_factory=dict)

    def do(self, key: Hashable, fn: Callable[[], _T], ctx: golang.Context = _BACKGROUND) -> _T:
        """Return the result of fn, or of a running call for the same key. Raise what fn raises.

        The caller waits for a call of another thread no longer than ctx lasts. Then this method raises
        golang.ContextError.
        """
        with self._lock:
            call = self._calls.get(key)
            first = call is None
            if call is None:
                call = self._calls[key] = _Call()
            call.askers += 1
        return call.shared(self._lock, partial(self._run, key, call, fn) if first else None, ctx)

    def _run(self, key: Hashable, call: _Call[_T], fn: Callable[[], _T]) -> None:
        call.run(fn)
        with self._lock:
            del self._calls[key]
        call.done.close()


@dataclass(slots=True)
class Rounds(Generic[_T]):
    """Run a function in rounds: one call at a time, and only when a caller waits for the result.

    All methods are thread-safe. A caller that arrives during a call shares the next call with all others that arrive
    meanwhile. So the result is never older than the request for it, which the result of Group may be, and many
    simultaneous callers cost two calls. Go has no counterpart.
    """

    fn: Callable[[], _T]
    # The thread whose call is running holds `_turn`.
    _turn: threading.Lock = field(default_factory=threading.Lock)
    # This lock guards `_next` and the callers' counts.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # `_next` is the call that has not started yet.
    _next: _Call[_T] | None = None

    def get(self, ctx: golang.Context = _BACKGROUND) -> _T:
        """Return the result of a call that starts after this request. Raise what fn raises.

        The caller waits for a call of another thread no longer than ctx lasts. Then this method raises
        golang.ContextError.
        """
        with self._lock:
            call = self._next
            first = call is None
            if call is None:
                call = self._next = _Call()
            call.askers += 1
        return call.shared(self._lock, partial(self._run, call) if first else None, ctx)

    def _run(self, call: _Call[_T]) -> None:
        with self._turn:
            with self._lock:
                self._next = None
            call.run(self.fn)
        call.done.close()
