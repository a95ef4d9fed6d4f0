"""One call for all who ask the same at the same time.

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
    """A call that is waited for."""

    # How many still want its result. Guarded by the lock of all calls.
    askers: int = 0
    done: golang.Channel[None] = field(default_factory=golang.Channel)
    results: list[_T] = field(default_factory=list)
    err: BaseException | None = None

    def run(self, fn: Callable[[], _T]) -> None:
        try:
            self.results.append(fn())
        except BaseException as err:  # It is raised by result, for each that waits.
            self.err = err

    def wait(self, ctx: golang.Context) -> None:
        """Raises golang.ContextError when ctx ends first."""
        if golang.select(self.done, ctx.done()).took(ctx.done()):
            ctx.raise_if_done()

    def result(self) -> _T:
        if self.err is not None:
            # Otherwise the traceback would grow by the frames of each thread that raises the error.
            raise self.err.with_traceback(None)
        return self.results[0]

    def shared(self, lock: threading.Lock, lead: Callable[[], None] | None, ctx: golang.Context) -> _T:
        """The result for one asker, whom `askers` counts: `lead` makes the call, for the asker that is the first.

        The error of a call has the frames of all threads that raised it, and each of these frames has the call. So the
        call drops the error with the last asker: otherwise all of them would stay until garbage is collected.
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
    """Thread-safe."""

    # Guards the dict.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _calls: dict[Hashable, _Call[_T]] = field(default_factory=dict)

    def do(self, key: Hashable, fn: Callable[[], _T], ctx: golang.Context = _BACKGROUND) -> _T:
        """fn's result, or that of the call for this key that is under way. Raises what fn raises.

        A call of another thread is waited for no longer than ctx lasts. Then golang.ContextError is raised.
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
    """What a function returns, made in rounds: one call at a time, and none for nobody.

    Who asks while a call is under way shares the next one with all others who ask meanwhile. So the result that they
    get is never older than their question, which that of Group may be, and a crowd costs two calls. No counterpart in
    Go. Thread-safe.
    """

    fn: Callable[[], _T]
    # Held by the thread whose call is under way.
    _turn: threading.Lock = field(default_factory=threading.Lock)
    # Guards _next.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # The call that has not begun yet.
    _next: _Call[_T] | None = None

    def get(self, ctx: golang.Context = _BACKGROUND) -> _T:
        """The result of a call that begins from now on. Raises what fn raises.

        A call of another thread is waited for no longer than ctx lasts. Then golang.ContextError is raised.
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
