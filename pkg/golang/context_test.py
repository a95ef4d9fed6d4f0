"""Test which contexts are done, when, and why."""

from __future__ import annotations

import io
import socket

import pytest

from pkg import golang
from pkg.golang import channel
from pkg.golang.channel_test import wait_for_blocked
from pkg.golang.testing import frames_kept_after

WAIT = 30.0


def test_background_is_never_done() -> None:
    ctx = golang.background()
    assert ctx.err() is None and ctx.remaining() is None and ctx.wait(0) is False
    assert golang.select(ctx.done(), default=True).case is None


def test_error_of_a_done_context_keeps_nobody_who_got_it() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    ctx.raise_if_done()
    cancel()
    with pytest.raises(golang.Canceled):
        ctx.raise_if_done()
    assert frames_kept_after(ctx.raise_if_done) == []


def test_cancel_reaches_descendants_and_not_ancestors() -> None:
    parent, cancel_parent = golang.with_cancel(golang.background())
    middle, cancel_middle = golang.with_cancel(golang.with_value(parent, "k", "v"))
    leaf, _ = golang.with_timeout(middle, 3600)
    cancel_middle()
    assert parent.err() is None
    assert isinstance(middle.err(), golang.Canceled) and isinstance(leaf.err(), golang.Canceled)
    assert str(leaf.err()) == "context canceled"
    assert leaf.done().try_recv() == (None, False, True)
    assert parent._state.children == {}, "a cancelled child stays with its parent"
    cancel_parent()
    cancel_parent()
    assert isinstance(parent.err(), golang.Canceled)


def test_whether_it_is_done_is_asked_without_the_lock() -> None:
    """`err` does not take the lock while the context is alive.

    Otherwise threads that check often would make threads that select wait for the lock.
    """
    ctx, cancel = golang.with_timeout(golang.background(), 3600)
    found: list[object] = []
    with channel.lock:
        thread = golang.go(lambda: found.append(ctx.err()), name="asks")
        thread.join(WAIT)
        is_blocked = thread.is_alive()
    thread.join()
    cancel()
    assert not is_blocked and found == [None]


def test_child_of_a_done_parent_is_done() -> None:
    parent, cancel = golang.with_cancel(golang.background())
    cancel()
    child, _ = golang.with_cancel(parent)
    assert isinstance(child.err(), golang.Canceled)


def test_deadline_passes_for_the_child_too() -> None:
    parent, cancel_parent = golang.with_timeout(golang.background(), 0.005)
    child, cancel_child = golang.with_cancel(parent)
    late, cancel_late = golang.with_timeout(parent, 3600)
    assert golang.select(late.done(), timeout=WAIT).took(late.done())
    for ctx in (parent, child, late):
        assert isinstance(ctx.err(), golang.DeadlineExceeded)
        assert ctx.remaining() == 0
    for cancel in (cancel_late, cancel_child, cancel_parent):
        cancel()
    assert isinstance(parent.err(), golang.DeadlineExceeded), "the first reason stays"


def test_deadline_is_a_timeout_error() -> None:
    ctx, cancel = golang.with_timeout(golang.background(), 0)
    cancel()
    with pytest.raises(TimeoutError, match="context deadline exceeded"):
        raise ctx.err() or AssertionError


def test_time_that_remains_is_one_that_can_be_waited_for() -> None:
    ctx, cancel = golang.with_timeout(golang.background(), float(2**63))
    assert ctx.remaining() == golang.MAX_REMAINING
    with socket.socket() as sock:
        sock.settimeout(ctx.remaining())
    cancel()


def test_earlier_deadline_wins() -> None:
    parent, cancel_parent = golang.with_timeout(golang.background(), 3600)
    child, cancel_child = golang.with_timeout(parent, 7200)
    sooner, cancel_sooner = golang.with_timeout(parent, 60)
    assert (child.remaining() or 0) <= 3600
    assert (sooner.remaining() or 0) <= 60
    for cancel in (cancel_sooner, cancel_child, cancel_parent):
        cancel()


def test_wait_ends_with_cancel() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    got: golang.Channel[bool] = golang.Channel(1)
    thread = golang.go(lambda: got.send(ctx.wait(3600)), name="waiter")
    wait_for_blocked(ctx.done(), receivers=1)
    cancel()
    assert got.recv(WAIT) == (True, True)
    thread.join(WAIT)


def test_wait_without_cancel_is_a_sleep() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    assert ctx.wait(0.001) is False
    cancel()
    assert ctx.wait(None) is True


def test_values() -> None:
    ctx = golang.with_value(golang.with_value(golang.background(), "a", 1), "b", 2)
    inner = golang.with_value(ctx, "a", 3)
    child, cancel = golang.with_cancel(inner)
    assert (ctx.value("a"), inner.value("a"), child.value("b"), child.value("c")) == (1, 3, 2, None)
    cancel()
    assert inner.err() is None
    free = golang.without_cancel(child)
    assert free.err() is None and free.value("a") == 3


def test_after_func() -> None:
    parent, cancel = golang.with_cancel(golang.background())
    child, _ = golang.with_cancel(parent)
    called: list[str] = []
    stop = golang.after_func(child, lambda: called.append("stopped"))
    golang.after_func(child, lambda: called.append("child"))
    golang.after_func(parent, lambda: called.append("parent"))
    assert stop() is True and stop() is False
    cancel()
    cancel()
    assert sorted(called) == ["child", "parent"]
    late = golang.after_func(child, lambda: called.append("late"))
    assert called[-1] == "late" and late() is False


def test_function_that_raises_does_not_keep_the_others_from_being_called(log: io.StringIO) -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    child, _ = golang.with_cancel(ctx)
    called: list[str] = []

    def fail() -> None:
        called.append("failed")
        raise OSError("no such process")

    for each in (ctx, child):
        golang.after_func(each, fail)
        golang.after_func(each, lambda: called.append("called"))
    cancel()
    golang.after_func(ctx, fail)
    assert sorted(called) == ["called", "called", "failed", "failed", "failed"]
    assert log.getvalue().count('err="no such process"') == 3


def test_what_a_function_refers_to_is_freed_without_the_lock_of_the_channels() -> None:
    """Removing a callback frees its objects without holding the lock of the channels.

    The finalizer of a foreign object may use one of our channels or contexts.
    """
    freed: list[bool] = []

    class Freed:
        def __call__(self) -> None: ...

        def __del__(self) -> None:
            freed.append(channel.lock.locked())

    ctx, cancel = golang.with_cancel(golang.background())
    stop = golang.after_func(ctx, Freed())
    stop()
    golang.after_func(ctx, Freed())
    cancel()
    assert freed == [False, False]


def test_after_func_may_use_channels_and_contexts() -> None:
    ctx, cancel = golang.with_cancel(golang.background())
    other, cancel_other = golang.with_cancel(golang.background())
    golang.after_func(ctx, cancel_other)
    cancel()
    assert isinstance(other.err(), golang.Canceled)
