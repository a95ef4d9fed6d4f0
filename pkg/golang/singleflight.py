"""One call for all who ask the same at the same time.

Go: golang.org/x/sync/singleflight/singleflight.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pkg import golang

_T = TypeVar("_T")

_BACKGROUND = golang.background()


@dataclass(slots=True)
class _Call(Generic[_T]):
    done: golang.Channel[None] = field(default_factory=golang.Channel)
    results: list[_T] = field(default_factory=list)
    err: BaseException | None = None


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
        if first:
            self._run(key, call, fn)
        elif golang.select(call.done, ctx.done()).index == 1:
            raise ctx.err() or golang.Canceled()
        if call.err is not None:
            raise call.err
        return call.results[0]

    def _run(self, key: Hashable, call: _Call[_T], fn: Callable[[], _T]) -> None:
        try:
            call.results.append(fn())
        except BaseException as err:  # It is raised by do, for each that waits.
            call.err = err
        finally:
            with self._lock:
                del self._calls[key]
            call.done.close()
