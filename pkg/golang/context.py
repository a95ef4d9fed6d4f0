"""Carry cancellation, deadlines and values down a call chain.

Go: context
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from pkg import klog
from pkg.golang.channel import Channel, lock


class ContextError(Exception):
    """Signal that a context is done, and why."""


class Canceled(ContextError):
    def __init__(self) -> None:
        super().__init__("context canceled")


class DeadlineExceeded(ContextError, TimeoutError):
    def __init__(self) -> None:
        super().__init__("context deadline exceeded")


class _State(Channel[None]):
    """Hold the cancellation state of a context and of the contexts that only add values to it.

    The state is also their done channel. A child inherits the deadline of its parent, so each state notices its
    deadline by itself, without a thread.
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
        """Register for cancellation with the parent; become cancelled at once if the parent is done."""
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
        """Report whether the state is not done, without taking the lock.

        Code that serves many clients checks this often, and would otherwise wait for the lock. While a cancellation is
        in progress, one context may already see it and another one not yet.
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


# The unit is seconds; the value is about 30 years. Sockets and gRPC cannot wait much longer: they raise an error, or
# treat the deadline as over.
MAX_REMAINING = 1e9

_BACKGROUND = _State(None, None)


class Context:
    """Carry a deadline, a cancellation signal and values; create one with `background` or a `with_…` function.

    All methods are safe to call from any thread.
    """

    __slots__ = ("_key", "_parent", "_state", "_value")

    def __init__(self, state: _State, parent: Context | None, key: object = None, value: Any = None) -> None:
        self._state = state
        self._parent = parent
        self._key = key
        self._value = value

    def done(self) -> Channel[None]:
        """Return a channel that is closed once the context is cancelled or its deadline has passed.

        Nothing is ever sent on the channel.
        """
        return self._state

    def err(self) -> ContextError | None:
        """Return None until the context is done, then a new Canceled or DeadlineExceeded."""
        if self._state.is_plainly_alive():
            return None
        with lock:
            self._state._ready_locked()
            err = self._state.err
        return None if err is None else err()

    def raise_if_done(self) -> None:
        """Raise what err() returns, unless that is None."""
        if (err := self.err()) is not None:
            try:
                raise err
            finally:
                # The error refers to this frame. If the frame also refers to the error, both stay in memory, together
                # with the frames of all callers, until the garbage collector runs.
                del err

    def wait(self, seconds: float | None) -> bool:
        """Sleep for `seconds` (None: without a limit) or until the context is done.

        Report whether the context is done.
        """
        self._state.recv(seconds)
        return self.err() is not None

    def remaining(self) -> float | None:
        """Return the seconds until the deadline, from 0 to MAX_REMAINING, or None if the context has no deadline.

        Pass the result as the `timeout=` of blocking calls.
        """
        deadline = self._state.deadline
        return None if deadline is None else min(max(deadline - monotonic(), 0.0), MAX_REMAINING)

    def value(self, key: object) -> Any:
        """Return the value that the nearest `with_value` set for the key, or None."""
        ctx: Context | None = self
        while ctx is not None:
            if ctx._key is not None and ctx._key == key:
                return ctx._value
            ctx = ctx._parent
        return None


_background = Context(_BACKGROUND, None)


def background() -> Context:
    """Return the context that is never done."""
    return _background


def with_cancel(parent: Context) -> tuple[Context, Callable[[], None]]:
    """Return a child context and its cancel function.

    Call that function when the work ends; it also frees the child.
    """
    return _child(parent, parent._state.deadline)


def with_timeout(parent: Context, seconds: float) -> tuple[Context, Callable[[], None]]:
    """Return a child with a deadline and its cancel function.

    The deadline is `seconds` from now, or the parent's if that is earlier.
    """
    return with_deadline(parent, monotonic() + seconds)


def with_deadline(parent: Context, deadline: float) -> tuple[Context, Callable[[], None]]:
    """Return a child whose deadline is `deadline`, in `time.monotonic()` seconds, and its cancel function.

    The parent's deadline counts if it is earlier.
    """
    inherited = parent._state.deadline
    return _child(parent, deadline if inherited is None else min(inherited, deadline))


def with_value(parent: Context, key: object, value: Any) -> Context:
    """Return a context that has the parent's values and this value for `key`."""
    return Context(parent._state, parent, key, value)


def without_cancel(parent: Context) -> Context:
    """Return a context that has the parent's values but is never done."""
    return Context(_BACKGROUND, parent)


def after_func(ctx: Context, fn: Callable[[], object]) -> Callable[[], bool]:
    """Call `fn` when ctx is cancelled, in the thread that cancels, or at once if ctx is already done.

    Return a function that removes the callback and reports whether it did so before `fn` was called. `fn` must be
    short: it is meant for work such as aborting a call in progress. An exception that `fn` raises is logged.

    Unlike in Go, a deadline that passes does not call `fn`, because no thread watches the deadline. A call that must
    end at the deadline gets `ctx.remaining()` as its timeout.
    """
    state, handle = ctx._state, object()

    def stop() -> bool:
        with lock:
            taken = state.callbacks.pop(handle, None)
        # The objects that `fn` refers to may be freed here, because the lock is released.
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
        # A failed callback must not stop the cancelling thread, nor the other callbacks, which belong to other callers.
        klog.error_s(err, "Callback of a cancelled context failed", stacktrace=klog.stacktrace(err))


def _child(parent: Context, deadline: float | None) -> tuple[Context, Callable[[], None]]:
    state = _State(parent._state, deadline)
    state.attach()
    return Context(state, parent), state.cancel
