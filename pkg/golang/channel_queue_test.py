"""Test channels as queues, and queues as cases of a select."""

from __future__ import annotations

import logging
import logging.handlers
import queue
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from pkg import golang
from pkg.golang import channel as channel_

WAIT = 30.0

Make = Callable[[int], "queue.Queue[Any]"]
both = pytest.mark.parametrize("make", [queue.Queue, golang.Channel])


def go(fn: Callable[[], Any]) -> golang.Channel[Any]:
    """Run fn in a thread, and return a channel that delivers its result or its error."""
    result: golang.Channel[Any] = golang.Channel(1)

    def run() -> None:
        try:
            result.send(fn())
        except Exception as err:  # The test examines the error.
            result.send(golang.without_frames(err))

    golang.go(run, name="beside")
    return result


def wait_in_line(plain: queue.Queue[Any], count: int) -> None:
    """Wait until `count` operations wait for a value of a queue that is not a channel."""
    ctx, cancel = golang.with_timeout(golang.background(), WAIT)
    try:
        while len(plain.not_empty._waiters) != count:  # type: ignore[attr-defined]
            assert not ctx.wait(0.001), "nobody is in line"
    finally:
        cancel()


def received(selected: golang.Selected[Any], source: queue.Queue[Any]) -> tuple[Any, bool]:
    taken = selected.took(source)
    assert taken is not None
    return taken.value, taken.ok


# The following tests run with both kinds of queue.


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
    q.task_done()  # task_done comes before get, because only the number of items counts.
    assert [each.get(timeout=WAIT) for each in joined] == [None, None]
    q.join()
    with pytest.raises(ValueError, match=r"task_done\(\) called too many times"):
        q.task_done()


@both
def test_log_records_pass(make: Make) -> None:
    """Log records pass through the queue to the listener of the standard library, which accepts any queue."""
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


# The following tests concern channels only.


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


# The following tests use queues as cases of select.


def test_select_takes_a_value_that_is_there() -> None:
    plain: queue.Queue[str] = queue.Queue()
    plain.put("x")
    assert received(golang.select(golang.Channel(), None, plain), plain) == ("x", True)
    assert golang.select(plain, default=True).case is golang.select(plain, timeout=0.001).case is None
    plain.put("y")
    assert received(golang.select(plain, default=True), plain) == ("y", True)
    wait_in_line(plain, 0)


def test_select_is_woken_by_a_put() -> None:
    plain: queue.Queue[str] = queue.Queue()
    ch: golang.Channel[str] = golang.Channel()
    for source in (plain, ch):
        taken = go(lambda: golang.select(plain, ch))
        wait_in_line(plain, 1)
        source.put("x")
        assert received(taken.get(timeout=WAIT), source) == ("x", True)
        wait_in_line(plain, 0)
        assert plain.empty() and not ch._receivers


def test_select_follows_the_order_of_the_queue() -> None:
    plain: queue.PriorityQueue[int] = queue.PriorityQueue()
    for value in (3, 1, 2):
        plain.put(value)
    assert [golang.select(plain, golang.Channel()).value for _ in range(3)] == [1, 2, 3]


def test_select_makes_room_for_a_blocked_put() -> None:
    plain: queue.Queue[str] = queue.Queue(1)
    plain.put("a")
    put = go(lambda: plain.put("b"))
    assert [golang.select(plain, timeout=WAIT).value for _ in range(2)] == ["a", "b"]
    assert put.get(timeout=WAIT) is None


def test_choice_among_queues_and_channels_is_uniform_and_can_be_replayed() -> None:
    plain: queue.Queue[int] = queue.Queue()
    one, two = golang.Channel[int](), golang.Channel[int]()
    one.close()
    two.close()

    def run(rounds: int) -> list[golang.Case]:
        golang.seed(7)
        for _ in range(rounds):
            plain.put(0)
        return [golang.select(one, plain, two).case for _ in range(rounds)]

    counts = Counter(run(3000))
    assert all(abs(counts[case] - 1000) < 130 for case in (one, plain, two)), counts  # 130 is five standard deviations.
    assert run(50) == run(50)


def test_a_put_that_woke_a_select_in_vain_wakes_the_next_in_line() -> None:
    """If the select took another case, the value is for the thread that is blocked in a get."""
    plain: queue.Queue[str] = queue.Queue()
    with channel_._in_line(plain) as bell:
        got = go(plain.get)
        wait_in_line(plain, 2)
        plain.put("x")
        assert len(bell) == 1 and plain.qsize() == 1, "the put has woken the select and nobody else"
    assert got.get(timeout=WAIT) == "x"
    wait_in_line(plain, 0)


def test_select_goes_on_when_another_thread_was_faster() -> None:
    class Contended(queue.Queue[str]):
        others = 2

        def get(self, block: bool = True, timeout: float | None = None) -> str:
            value = super().get(block, timeout)
            if self.others:
                self.others -= 1
                raise queue.Empty
            return value

    plain = Contended()
    for value in ("a", "b", "c"):
        plain.put(value)
    assert received(golang.select(plain, timeout=WAIT), plain) == ("c", True)


def test_a_queue_that_is_shut_down_is_like_a_closed_channel() -> None:
    class Ended(queue.Queue[str]):
        """Behave like a queue of Python 3.13 after its shutdown."""

        is_shutdown = False

        def get(self, block: bool = True, timeout: float | None = None) -> str:
            if self.empty():
                raise channel_.ShutDown
            return super().get(block, timeout)

    plain = Ended()
    plain.put("x")
    plain.is_shutdown = True
    assert received(golang.select(plain), plain) == ("x", True)
    assert received(golang.select(plain), plain) == (None, False)


@pytest.mark.parametrize("case", [queue.SimpleQueue(), "text", threading.Lock()])
def test_what_is_no_case_is_refused(case: Any) -> None:
    with pytest.raises(TypeError, match=f"a {type(case).__name__} cannot be a case of select"):
        golang.select(golang.Channel(), case)


def test_an_error_of_a_case_is_told() -> None:
    class Broken(golang.Channel[None]):
        def _ready_locked(self) -> bool:
            raise AttributeError("broken")

    with pytest.raises(AttributeError, match="broken"):
        golang.select(Broken())


def test_stress_no_value_of_a_queue_is_lost() -> None:
    """No value is lost in concurrent puts, gets and selects over two queues and a channel."""
    queues: list[queue.Queue[int]] = [queue.Queue(), queue.Queue(3)]
    sources = [*queues, golang.Channel[int](1)]
    count, got, guard = 200, list[int](), threading.Lock()
    done: golang.Channel[None] = golang.Channel()

    def put(source: queue.Queue[int], start: int) -> None:
        for value in range(start, start + count):
            source.put(value)

    def note(value: int) -> None:
        with guard:
            got.append(value)

    def get(plain: queue.Queue[int]) -> None:
        while (value := plain.get()) >= 0:
            note(value)

    def take(order: list[queue.Queue[int]]) -> None:
        while not (taken := golang.select(*order, done)).took(done):
            note(taken.value)

    putters = [
        golang.go(put, source, i * count, name=f"putter-{i}")
        for i, source in enumerate(source for source in sources * 2)
    ]
    getters = [golang.go(get, plain, name="getter") for plain in queues]
    takers = [golang.go(take, sources[i:] + sources[:i], name=f"taker-{i}") for i in range(3)]
    for thread in putters:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    while any(not source.empty() for source in sources):
        golang.background().wait(0.001)
    done.close()
    for thread in takers:
        thread.join(60)
        assert not thread.is_alive(), "deadlock"
    for plain in queues:
        plain.put(-1)
    for thread in getters:
        thread.join(60)
        assert not thread.is_alive(), "a get was not woken"
    assert sorted(got) == list(range(count * len(putters)))
    for plain in queues:
        wait_in_line(plain, 0)
