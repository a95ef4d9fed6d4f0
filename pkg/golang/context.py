"""Cancellation, deadlines and values that travel down a call chain.

Go: context
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from pkg import klog
from pkg.golang.channel import Channel, lock


class ContextError(Exception):
    """Why a context is done."""


class Canceled(ContextError):
    def __init__(self) -> None:
        super().__init__("context canceled")


class DeadlineExceeded(ContextError, TimeoutError):
    def __init__(self) -> None:
        super().__init__("context deadline exceeded")


class _State(Channel[None]):
    """What cancelling acts on, and at the same time the done channel of a context
    and of those that only add values to it.

    The deadline of a parent is inherited, so each state notices it by itself, without a thread.
    """

    __slots__ = ("callbacks", "children", "deadline", "err", "parent")

    def __init__(self, parent: _State | None, deadline: float | None) -> None:
        super().__init__()
        self.parent = parent
        self.deadline = self._deadline = deadline
        self.err: type[ContextError] | None = None
        self.children: dict[_State, None] = {}
        self.callbacks: dict[object, Callable[[], object]] = {}

    def attach(self) -> None:
        """Be cancelled with the parent; at once if that is done."""
        if self.parent is None or self.parent is _BACKGROUND:
            return
        with lock:
            self.parent._ready_locked()
            if self.parent.err is not None:
                self._finish_locked(self.parent.err)
            else:
                self.parent.children[self] = None

    def cancel(self) -> None:
        callbacks: list[Callable[[], object]] = []
        with lock:
            self._ready_locked()
            self._cancel_locked(callbacks)
            if self.parent is not None:
                self.parent.children.pop(self, None)
        for callback in callbacks:
            _call(callback)

    def is_plainly_alive(self) -> bool:
        """Whether it is not done, without the lock: what serves many looks here often, and would stand in line for it.

        A cancellation that is under way may be seen by one context and not yet by another.
        """
        return self.err is None and (self.deadline is None or monotonic() < self.deadline)

    def _cancel_locked(self, callbacks: list[Callable[[], object]]) -> None:
        if self.err is None:
            self._finish_locked(Canceled)
        callbacks.extend(self.callbacks.values())
        self.callbacks.clear()
        for child in self.children:
            child._ready_locked()
            child._cancel_locked(callbacks)
        self.children.clear()

    def _finish_locked(self, err: type[ContextError]) -> None:
        self.err = err
        self._close_locked()

    def _expire_locked(self) -> None:
        self._finish_locked(DeadlineExceeded)


# Seconds, some 30 years. Sockets and gRPC cannot wait for many more: they raise, or take the deadline to be over.
MAX_REMAINING = 1e9

_BACKGROUND = _State(None, None)


class Context:
    """Made by `background` and the `with_…` functions; safe from any thread."""

    __slots__ = ("_key", "_parent", "_state", "_value")

    def __init__(self, state: _State, parent: Context | None, key: object = None, value: Any = None) -> None:
        self._state = state
        self._parent = parent
        self._key = key
        self._value = value

    def done(self) -> Channel[None]:
        """Closed once the context is cancelled or its deadline has passed; nothing is ever sent on it."""
        return self._state

    def err(self) -> ContextError | None:
        """None until done, then a new Canceled or DeadlineExceeded."""
        if self._state.is_plainly_alive():
            return None
        with lock:
            self._state._ready_locked()
            err = self._state.err
        return None if err is None else err()

    def raise_if_done(self) -> None:
        """Raises what err() returns, unless that is None."""
        if (err := self.err()) is not None:
            try:
                raise err
            finally:
                # The error has this frame: together they would stay, with all who called, until garbage is collected.
                del err

    def wait(self, seconds: float | None) -> bool:
        """Sleep `seconds` (None: for ever) or until done; returns whether the context is done."""
        self._state.recv(seconds)
        return self.err() is not None

    def remaining(self) -> float | None:
        """Seconds until the deadline, from 0 to MAX_REMAINING; None without one. The `timeout=` of blocking calls."""
        deadline = self._state.deadline
        return None if deadline is None else min(max(deadline - monotonic(), 0.0), MAX_REMAINING)

    def value(self, key: object) -> Any:
        """The value that the nearest `with_value` gave to the key, or None."""
        ctx: Context | None = self
        while ctx is not None:
            if ctx._key is not None and ctx._key == key:
                return ctx._value
            ctx = ctx._parent
        return None


_background = Context(_BACKGROUND, None)


def background() -> Context:
    """The context that is never done."""
    return _background


def with_cancel(parent: Context) -> tuple[Context, Callable[[], None]]:
    """A child and its cancel function, to be called when the work is over: it also frees the child."""
    return _child(parent, parent._state.deadline)


def with_timeout(parent: Context, seconds: float) -> tuple[Context, Callable[[], None]]:
    """As with_cancel, with a deadline `seconds` from now unless the parent's comes earlier."""
    return with_deadline(parent, monotonic() + seconds)


def with_deadline(parent: Context, deadline: float) -> tuple[Context, Callable[[], None]]:
    """As with_timeout; the deadline is in `time.monotonic()` seconds."""
    inherited = parent._state.deadline
    return _child(parent, deadline if inherited is None else min(inherited, deadline))


def with_value(parent: Context, key: object, value: Any) -> Context:
    """A context that also answers to `key`."""
    return Context(parent._state, parent, key, value)


def without_cancel(parent: Context) -> Context:
    """A context with the parent's values that is never done."""
    return Context(_BACKGROUND, parent)


def after_func(ctx: Context, fn: Callable[[], object]) -> Callable[[], bool]:
    """Call `fn` when ctx is cancelled, in the thread that cancels, or at once if ctx is done already.

    Returns a function that takes the callback back; that returns whether it did so before `fn` was called.
    `fn` must be short: it is meant for things like cancelling a call in flight. What it raises is logged.
    A deadline that passes does not call `fn` (no thread watches it), unlike Go's. A call that should end at the
    deadline gets `ctx.remaining()` as its timeout.
    """
    state, handle = ctx._state, object()

    def stop() -> bool:
        with lock:
            taken = state.callbacks.pop(handle, None)
        # What `fn` refers to may be freed now, when the lock is not held any more.
        return taken is not None

    with lock:
        done = state._ready_locked()
        if not done and state is not _BACKGROUND:
            state.callbacks[handle] = fn
    if done:
        _call(fn)
    return stop


def _call(fn: Callable[[], object]) -> None:
    try:
        fn()
    except Exception as err:
        # The other functions are called too, each for somebody else, and who cancels goes on.
        klog.error_s(err, "Function that a cancelled context calls failed", stacktrace=klog.stacktrace(err))


def _child(parent: Context, deadline: float | None) -> tuple[Context, Callable[[], None]]:
    state = _State(parent._state, deadline)
    state.attach()
    return Context(state, parent), state.cancel
