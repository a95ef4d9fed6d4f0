"""Provide channels and select with the semantics of Go.

Go: runtime/chan.go, runtime/select.go; `chan` and `select` belong to the language itself

How it works. Every channel keeps its buffered values and two FIFO queues of blocked operations. A blocked operation is
a `_Waiter`: it holds the cases of one select (a plain send or receive is a select with one case) and a lock that its
thread sleeps on. The thread that makes one of those cases possible completes the case on the waiter's behalf, removes
the waiter from all queues and wakes the waiter's thread. So no thread polls, and a woken thread already has its result.

One lock guards all channels. CPython runs one thread at a time anyway, the guarded sections are short, and a select
over several channels then needs no lock order. No code of a caller runs while the lock is held.

A channel can become ready by itself at `_deadline` (timers, contexts with a deadline). No thread watches that time: a
thread that blocks on the channel sleeps at most until the deadline, and then calls `_expire_locked`.

A channel is a queue.Queue, but it does without the lock and the conditions that queue.Queue blocks on. A select can
also receive from any other queue.Queue: it waits in that queue's own list of waiters, where a blocked `get` waits
(`_in_line`).
"""

from __future__ import annotations

import queue
import random
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, Generic, TypeGuard, TypeVar, overload

from pkg.golang.mutex import Mutex

if TYPE_CHECKING:
    from pkg.golang.context import Context

if sys.version_info >= (3, 13):
    from queue import ShutDown
else:

    class ShutDown(Exception):
        """Signal that a queue is shut down, as the exception of the same name in `queue` does since Python 3.13."""


T = TypeVar("T")
U = TypeVar("U")

# This lock guards the fields of every Channel, _Waiter and context state. A thread that holds it must not block and
# must not call code of others.
lock = Mutex()

_random = random.Random()

_WAITING = -1
_RETRY = -2


class ClosedChannelError(ShutDown, RuntimeError):
    """Signal a send on a closed channel or a second close: a programming error, for which Go panics.

    For code that uses the channel as a queue, the error means that the queue was shut down. `get` raises it too.
    """


class Selected(Generic[T]):
    """Describe the result of `select`: the case that it executed, and the value that it received.

    `case` is None if the select ended with its default or its timeout. If the channel is closed, `value` is None and
    `ok` is false.
    """

    __slots__ = ("_cases", "case", "ok", "value")

    def __init__(self, cases: tuple[Case, ...], case: Case, value: T, ok: bool) -> None:
        self._cases = cases
        self.case = case
        self.value = value
        self.ok = ok

    @overload
    def took(self, case: queue.Queue[U] | None) -> Selected[U] | None: ...

    @overload
    def took(self, case: Send[Any]) -> Selected[None] | None: ...

    def took(self, case: Case) -> Selected[Any] | None:
        """Return this object if the select executed the given case, otherwise None.

        The returned object is typed with the channel's value type. Raise ValueError if the select had no such case. The
        error occurs, for example, when the caller creates a new timer channel instead of passing the one that it gave
        to the select.
        """
        if case is self.case and case is not None:
            return self
        if case not in self._cases:
            raise ValueError("the select had no such case")
        return None


def seed(n: int) -> None:
    """Seed the random choice among ready cases, so that a run can be replayed."""
    _random.seed(n)


class _Waiter:
    """Represent one blocked select. `index` names the case that was completed for it, or why it woke without one."""

    __slots__ = ("cases", "index", "ok", "value", "wake")

    def __init__(self, cases: tuple[_OwnCase, ...]) -> None:
        self.cases = cases
        self.index = _WAITING
        self.value: Any = None
        self.ok = False
        self.wake = threading.Lock()
        self.wake.acquire()
        for i, case in enumerate(cases):
            if case is not None:
                case._enqueue_locked((self, i))

    def fire_locked(self, index: int, value: Any, ok: bool) -> None:
        self.index, self.value, self.ok = index, value, ok
        self._dequeue_locked()
        self.wake.release()

    def sleep(self, until: float | None) -> None:
        """Sleep until a case is completed or until the monotonic time `until`. On return the waiter is in no queue."""
        timeout = -1.0 if until is None else min(max(until - monotonic(), 0.0), threading.TIMEOUT_MAX)
        woken = False
        try:
            woken = self.wake.acquire(True, timeout)
        finally:  # This block also runs after a timeout, or after a signal handler raised an exception.
            if not woken:
                with lock:
                    if self.index == _WAITING:
                        self._dequeue_locked()

    def _dequeue_locked(self) -> None:
        for i, case in enumerate(self.cases):
            if case is not None:
                case._dequeue_locked((self, i))


class Channel(queue.Queue[T]):
    """Pass values between threads in FIFO order; with `maxsize` 0, a sender blocks until a receiver takes its value.

    A channel keeps the documented contract of queue.Queue with one difference: a queue.Queue with `maxsize` 0 is
    unbounded. A channel with `maxsize` 0 is always both empty and full, and `put` returns once a receiver has the item.
    The attributes that queue.Queue has but does not document (`mutex`, `not_empty`, `queue`, …) are missing.

    All methods are safe to call from any thread, but not from signal handlers and finalizers: these may run while their
    own thread holds the lock of all channels. finalizers_test.py checks that no finalizer uses a channel. As a case of
    `select`, a channel means a receive from that channel.
    """

    __slots__ = ("_buffer", "_closed", "_deadline", "_receivers", "_senders", "maxsize", "passed")

    # `_done` counts the values for which task_done was called. `_all_done` is closed once it has been called for all
    # values that passed. The two are class attributes and not slots, because few channels need them.
    _done = 0
    _all_done: Channel[None] | None = None

    def __init__(self, maxsize: int = 0) -> None:
        # Queue.__init__ is not called, because it creates a lock and three conditions that a channel does not use.
        if maxsize < 0:
            raise ValueError(f"channel capacity must not be negative, got {maxsize}")
        self.maxsize = maxsize
        # `passed` counts the values that have entered the channel so far. Only observers read it.
        self.passed = 0
        self._buffer: deque[T] = deque()
        self._closed = False
        self._deadline: float | None = None
        # These dicts serve as ordered sets: the waiter of a select may leave from the middle, and an empty dict is
        # small.
        self._receivers: dict[tuple[_Waiter, int], None] = {}
        self._senders: dict[tuple[_Waiter, int], T] = {}

    def send(self, value: T, ctx: Context | None = None) -> None:
        """Send the value; block while no thread receives and the buffer is full.

        Raise ClosedChannelError if the channel is closed or becomes closed, and ctx.err() once ctx is done.
        """
        if self.try_send(value):
            return
        if ctx is None:
            _select((Send(self, value),))
        elif _select((Send(self, value), done := ctx.done())).took(done):
            raise ctx.err() or AssertionError("a done context has an error")

    def try_send(self, value: T) -> bool:
        """Send the value if that needs no waiting. Report whether the value was sent."""
        with lock:
            if not self._send_ready_locked():
                return False
            self._put_locked(value)
            return True

    def recv(self, timeout: float | None = None) -> tuple[T | None, bool]:
        """Receive a value.

        Return (value, True), or (None, False) if the channel is closed and drained, or after `timeout` seconds.
        """
        with lock:
            if self._ready_locked():
                return self._complete_locked()
        taken = _select((self,), timeout=timeout)
        return taken.value, taken.ok

    def try_recv(self) -> tuple[T | None, bool, bool]:
        """Receive without waiting, as (value, ok, ready).

        Ready and not ok means that the channel is closed and drained.
        """
        with lock:
            if not self._ready_locked():
                return None, False, False
            value, ok = self._complete_locked()
            return value, ok, True

    def close(self) -> None:
        """Close the channel: receivers drain the buffer and then get (None, False); blocked senders raise an error."""
        with lock:
            if self._closed:
                raise ClosedChannelError("close of closed channel")
            self._close_locked()

    def __iter__(self) -> Iterator[T]:
        """Yield received values until the channel is closed and drained."""
        while True:
            value, ok = self.recv()
            if not ok:
                return
            yield value  # type: ignore[misc]  # ok says that it is a T

    def __len__(self) -> int:
        """Return the number of buffered values."""
        with lock:
            self._ready_locked()
            return len(self._buffer)

    def __bool__(self) -> bool:
        """Return True always, so that `if ch` tests for a nil channel and not for an empty one."""
        return True

    # The next methods make the channel usable as a queue; put_nowait and get_nowait are inherited.

    def put(self, item: T, block: bool = True, timeout: float | None = None) -> None:
        """Send the item.

        Raise queue.Full if the item cannot be sent at once, or within `timeout` seconds. Raise ClosedChannelError if
        the channel is closed or becomes closed.
        """
        _check_timeout(block, timeout)
        if _select((Send(self, item),), not block, timeout).case is None:
            raise queue.Full

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Receive a value.

        Raise queue.Empty if no value can be received at once, or within `timeout` seconds. Raise ClosedChannelError
        once the channel is closed and drained.
        """
        _check_timeout(block, timeout)
        taken = _select((self,), not block, timeout)
        if taken.case is None:
            raise queue.Empty
        if not taken.ok:
            raise ClosedChannelError("get from closed channel")
        value: T = taken.value
        return value

    def qsize(self) -> int:
        """Return the number of buffered values."""
        return len(self)

    def empty(self) -> bool:
        """Report whether no value is buffered."""
        return not len(self)

    def full(self) -> bool:
        """Report whether the buffer has no free place."""
        return len(self) >= self.maxsize

    def task_done(self) -> None:
        """Count one of the received values as processed. Raise ValueError if all of them are already."""
        with lock:
            if self._done == self.passed:
                raise ValueError("task_done() called too many times")
            self._count_done_locked(1)

    def join(self) -> None:
        """Wait until task_done() was called for each value that passed through the channel."""
        with lock:
            if self._done == self.passed:
                return
            if self._all_done is None:
                self._all_done = Channel()
            all_done = self._all_done
        all_done.recv()

    def shutdown(self, immediate: bool = False) -> None:
        """Close the channel if it is open; with `immediate`, also drop the buffered values and count them as processed.

        queue.Queue has this method since Python 3.13.
        """
        dropped: deque[T] = deque()
        with lock:
            if not self._closed:
                self._close_locked()
            if immediate:
                # The values are freed on return, after the lock is released.
                dropped, self._buffer = self._buffer, dropped
                self._count_done_locked(len(dropped))

    def _count_done_locked(self, count: int) -> None:
        self._done = min(self._done + count, self.passed)
        if self._done == self.passed and self._all_done is not None:
            self._all_done._close_locked()
            self._all_done = None

    # With the next methods, the channel is a receive case of select. Send below has the same five methods.

    def _ready_locked(self) -> bool:
        if self._deadline is not None and monotonic() >= self._deadline:
            self._expire_locked()
        return bool(self._buffer) or bool(self._senders) or self._closed

    def _still_ready_locked(self) -> bool:
        """Report whether the case is still ready after _ready_locked said so.

        In the meantime, the deadline of another case may have woken the waiters of this channel.
        """
        return bool(self._buffer) or bool(self._senders) or self._closed

    def _complete_locked(self) -> tuple[T | None, bool]:
        if self._buffer:
            value = self._buffer.popleft()
            if self._senders:
                self._buffer.append(self._next_sender_locked())
            return value, True
        if self._senders:
            return self._next_sender_locked(), True
        return None, False

    def _enqueue_locked(self, entry: tuple[_Waiter, int]) -> None:
        self._receivers[entry] = None

    def _dequeue_locked(self, entry: tuple[_Waiter, int]) -> None:
        self._receivers.pop(entry, None)

    # The next methods serve senders and subclasses.

    def _send_ready_locked(self) -> bool:
        return bool(self._receivers) or len(self._buffer) < self.maxsize or self._closed

    def _put_locked(self, value: T) -> None:
        """Hand the value over. Call this only if _send_ready_locked returned True."""
        if self._closed:
            raise ClosedChannelError("send on closed channel")
        self.passed += 1
        if self._receivers:
            waiter, index = next(iter(self._receivers))
            waiter.fire_locked(index, value, True)
        else:
            self._buffer.append(value)

    def _next_sender_locked(self) -> T:
        (waiter, index), value = next(iter(self._senders.items()))
        self.passed += 1
        waiter.fire_locked(index, None, True)
        return value

    def _close_locked(self) -> None:
        self._closed = True
        self._deadline = None
        for waiter, index in [*self._receivers, *self._senders]:
            if waiter.index == _WAITING:  # A waiter may be queued here more than once.
                waiter.fire_locked(index, None, False)

    def _set_deadline_locked(self, deadline: float | None) -> None:
        """Change the time at which the channel becomes ready.

        Wake the blocked receivers, because they sleep until the old time.
        """
        self._deadline = deadline
        for waiter, _ in list(self._receivers):
            if waiter.index == _WAITING:
                waiter.fire_locked(_RETRY, None, False)

    def _expire_locked(self) -> None:
        """Handle the passing of `_deadline`; an implementation must move or clear the deadline."""
        raise NotImplementedError


class Send(Generic[T]):
    """Describe a case of `select` that sends `value` on `channel`. None is the nil channel, which is never ready."""

    __slots__ = ("channel", "value")

    def __init__(self, channel: Channel[T] | None, value: T) -> None:
        self.channel = channel
        self.value = value

    def _ready_locked(self) -> bool:
        return self.channel is not None and self.channel._send_ready_locked()

    _still_ready_locked = _ready_locked

    def _complete_locked(self) -> tuple[None, bool]:
        assert self.channel is not None
        self.channel._put_locked(self.value)
        return None, True

    def _enqueue_locked(self, entry: tuple[_Waiter, int]) -> None:
        if self.channel is not None:
            self.channel._senders[entry] = self.value

    def _dequeue_locked(self, entry: tuple[_Waiter, int]) -> None:
        if self.channel is not None:
            self.channel._senders.pop(entry, None)


_OwnCase = Channel[Any] | Send[Any] | None
Case = queue.Queue[Any] | Send[Any] | None


def select(*cases: Case, default: bool = False, timeout: float | None = None) -> Selected[Any]:
    """Wait until a case can proceed, execute such a case, chosen uniformly at random, and return it.

    A case is a Channel or another queue.Queue (receive), a Send, or None (a nil channel, never ready). With `default`,
    if no case is ready at once, no case is executed; likewise after `timeout` seconds. The result's `took` tells which
    case it was.

    Raise ClosedChannelError if the executed case sends on a closed channel. Raise TypeError for any other kind of case.
    SimpleQueue is such a kind, because only its `get` can wait for its values.
    """
    try:
        return _select(cases, default, timeout)
    except AttributeError:
        # Other queues lack the methods of a case. They are rare, and checking each case would cost a tenth of a select.
        if all(case is None or isinstance(case, Channel | Send) for case in cases):
            raise
    return _select_also_from_queues(cases, default, timeout)


def _select(cases: tuple[Any, ...], default: bool = False, timeout: float | None = None) -> Selected[Any]:
    """Execute a select whose cases are all channels, Sends or None."""
    limit = None if timeout is None else monotonic() + timeout
    while True:
        with lock:
            ready = [case for case in cases if case is not None and case._ready_locked()]
            # When _ready_locked notices a deadline, it wakes waiters. These leave the queues in which a case checked
            # earlier has seen them, and that case may no longer be ready.
            if ready and (ready := [case for case in ready if case._still_ready_locked()]):
                case = ready[0] if len(ready) == 1 else ready[int(_random.random() * len(ready))]
                return Selected(cases, case, *case._complete_locked())
            if default or (limit is not None and monotonic() >= limit):
                return Selected(cases, None, None, False)
            waiter = _Waiter(cases)
            until = _earliest_locked(cases, limit)
        waiter.sleep(until)
        if waiter.index >= 0:
            case = cases[waiter.index]
            if not waiter.ok and isinstance(case, Send):
                raise ClosedChannelError("send on closed channel")
            return Selected(cases, case, waiter.value, waiter.ok)


def _earliest_locked(cases: tuple[_OwnCase, ...], limit: float | None) -> float | None:
    """Return the monotonic time at which a select must check its cases again without being woken."""
    for case in cases:
        deadline = case._deadline if isinstance(case, Channel) else None
        if deadline is not None and (limit is None or deadline < limit):
            limit = deadline
    return limit


def _select_also_from_queues(cases: tuple[Case, ...], default: bool, timeout: float | None) -> Selected[Any]:
    limit = None if timeout is None else monotonic() + timeout
    while True:
        with ExitStack() as lines:
            own_cases = tuple(lines.enter_context(_in_line(case)) if _is_plain(case) else case for case in cases)
            taken = _select(own_cases, default, None if limit is None else max(limit - monotonic(), 0.0))
            if not isinstance(taken.case, _Bell):
                return Selected(cases, taken.case, taken.value, taken.ok)
            plain = taken.case.plain
            try:
                return Selected(cases, plain, plain.get_nowait(), True)
            except queue.Empty:
                pass  # Another thread took the value first.
            except ShutDown:
                return Selected(cases, plain, None, False)


def _is_plain(case: Case) -> TypeGuard[queue.Queue[Any]]:
    """Report whether the case is a queue but not a channel. Raise TypeError if it cannot be a case of a select."""
    if case is None or isinstance(case, Channel | Send):
        return False
    if not isinstance(case, queue.Queue):
        raise TypeError(f"a {type(case).__name__} cannot be a case of select")
    return True


class _Bell(Channel[None]):
    """Represent a plain queue in a select. A bell is ready when the queue may have a value."""

    __slots__ = ("plain",)

    def __init__(self, plain: queue.Queue[Any]) -> None:
        super().__init__(1)
        self.plain = plain

    def release(self) -> None:
        """Wake the select.

        A put calls this in place of the release of a blocked get's lock, and holds the mutex of the queue.
        """
        self.try_send(None)


@contextmanager
def _in_line(plain: queue.Queue[Any]) -> Iterator[_Bell]:
    """Add a bell to the queue's list of blocked gets, from which each put wakes one entry; remove the bell at the end.

    Condition.wait does the same with a lock. The bell also works for a subclass of Queue, whatever its order, if its
    put notifies `not_empty`; a subclass whose put does not would not wake its own blocked `get` either. The mutex of
    the queue is never taken under the lock of all channels, because a put takes the two in the opposite order. So a put
    to this queue, too, must not be called from finalizers and signal handlers (see Channel).
    """
    bell = _Bell(plain)
    line = plain.not_empty._waiters  # type: ignore[attr-defined]
    with plain.not_empty:
        line.append(bell)
    try:
        if not plain.empty() or getattr(plain, "is_shutdown", False):
            bell.release()
        yield bell
    finally:
        with plain.not_empty:
            try:
                line.remove(bell)
            except ValueError:
                # A put has woken this bell instead of a blocked get, and its value may still be in the queue. Wake the
                # next waiter.
                plain.not_empty.notify()


def _check_timeout(block: bool, timeout: float | None) -> None:
    if block and timeout is not None and timeout < 0:
        raise ValueError("'timeout' must be a non-negative number")
