"""Channels as queues."""

from __future__ import annotations

import logging
import logging.handlers
import queue
from collections.abc import Callable
from typing import Any

import pytest

from pkg import golang

WAIT = 30.0

Make = Callable[[int], "queue.Queue[Any]"]
both = pytest.mark.parametrize("make", [queue.Queue, golang.Channel])


def go(fn: Callable[[], Any]) -> golang.Channel[Any]:
    """What a thread returns or raises."""
    result: golang.Channel[Any] = golang.Channel(1)

    def run() -> None:
        try:
            result.send(fn())
        except Exception as err:  # it is what the test looks at
            result.send(golang.without_frames(err))

    golang.go(run, name="beside")
    return result


# What both kinds of queue do.


@both
def test_first_in_first_out(make: Make) -> None:
    q = make(2)
    assert (q.maxsize, q.qsize(), q.empty(), q.full()) == (2, 0, True, False)
    q.put("a")
    assert (q.qsize(), q.empty(), q.full()) == (1, False, False)
    q.put_nowait("b")
    assert (q.qsize(), q.empty(), q.full()) == (2, False, True)
    assert (q.get(), q.get_nowait(), q.qsize()) == ("a", "b", 0)


@both
def test_nothing_to_get(make: Make) -> None:
    q = make(1)
    for block, timeout in ((True, 0.001), (True, 0), (False, None), (False, -1)):
        with pytest.raises(queue.Empty):
            q.get(block, timeout)
    with pytest.raises(queue.Empty):
        q.get_nowait()
    with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
        q.get(timeout=-1)


@both
def test_no_room(make: Make) -> None:
    q = make(1)
    q.put(None)
    assert q.full()
    for block, timeout in ((True, 0.001), (True, 0), (False, None), (False, -1)):
        with pytest.raises(queue.Full):
            q.put(1, block, timeout)
    with pytest.raises(queue.Full):
        q.put_nowait(1)
    with pytest.raises(ValueError, match="'timeout' must be a non-negative number"):
        q.put(1, timeout=-1)
    assert q.get_nowait() is None


@both
def test_put_and_get_wait_for_each_other(make: Make) -> None:
    q = make(1)
    for get in (q.get, lambda: q.get(timeout=WAIT)):
        got = go(get)
        q.put("x", timeout=WAIT)
        assert got.get(timeout=WAIT) == "x"
    q.put("a")
    put = go(lambda: q.put("b"))
    assert [q.get(timeout=WAIT), q.get(timeout=WAIT)] == ["a", "b"]
    assert put.get(timeout=WAIT) is None


@both
def test_join_waits_for_all_tasks(make: Make) -> None:
    q = make(2)
    q.join()
    q.put(1)
    q.put(2)
    joined = [go(q.join) for _ in range(2)]
    q.get()
    q.task_done()
    for each in joined:
        assert each.empty()
    q.task_done()  # before the get: only how many is counted
    assert [each.get(timeout=WAIT) for each in joined] == [None, None]
    q.join()
    with pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
        q.task_done()


@both
def test_log_records_pass(make: Make) -> None:
    """The library's own listener takes any queue."""
    records = make(10)
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    listener = logging.handlers.QueueListener(records, handler)
    listener.start()
    sender = logging.handlers.QueueHandler(records)
    for text in ("one", "two"):
        sender.handle(logging.makeLogRecord({"msg": text, "levelno": logging.INFO}))
    listener.stop()
    assert seen == ["one", "two"]
    records.join()


# What only channels do.


def test_channel_without_room_is_empty_and_full() -> None:
    ch: golang.Channel[str] = golang.Channel()
    assert isinstance(ch, queue.Queue)
    assert (ch.maxsize, ch.qsize(), ch.empty(), ch.full()) == (0, 0, True, True)
    with pytest.raises(queue.Full):
        ch.put_nowait("x")
    put = go(lambda: ch.put("x"))
    assert ch.get(timeout=WAIT) == "x" and put.get(timeout=WAIT) is None
    got = go(ch.get)
    ch.put("y", timeout=WAIT)
    assert got.get(timeout=WAIT) == "y"
    assert (ch.qsize(), ch.passed) == (0, 2)


def test_closing_ends_put_and_get() -> None:
    ch: golang.Channel[str] = golang.Channel(1)
    ch.put("x")
    blocked = go(lambda: ch.put("y"))
    while not ch._senders:
        golang.background().wait(0.001)
    ch.close()
    assert isinstance(blocked.get(timeout=WAIT), golang.ClosedChannelError)
    assert ch.get() == "x"
    for end in (ch.get, ch.get_nowait, lambda: ch.put("z"), lambda: ch.put_nowait("z")):
        with pytest.raises(golang.ClosedChannelError):
            end()


def test_closing_wakes_a_blocked_get() -> None:
    ch: golang.Channel[str] = golang.Channel()
    got = go(ch.get)
    ch.close()
    assert isinstance(got.get(timeout=WAIT), golang.ClosedChannelError)


def test_shutdown_closes() -> None:
    ch: golang.Channel[str] = golang.Channel(2)
    ch.put("x")
    ch.shutdown()
    ch.shutdown()
    assert list(ch) == ["x"]
    with pytest.raises(getattr(queue, "ShutDown", golang.ClosedChannelError)):
        ch.get()


def test_shutdown_at_once_drops_what_waits() -> None:
    ch: golang.Channel[str] = golang.Channel(3)
    for value in ("a", "b", "c"):
        ch.put(value)
    ch.get()
    joined = go(ch.join)
    ch.shutdown(immediate=True)
    assert ch.empty() and joined.empty()
    ch.task_done()
    assert joined.get(timeout=WAIT) is None


def test_shutdown_at_once_after_early_task_done() -> None:
    ch: golang.Channel[str] = golang.Channel(1)
    ch.put("x")
    ch.task_done()
    ch.shutdown(immediate=True)
    ch.join()
