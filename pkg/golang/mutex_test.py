"""Tests of the lock that a woken thread does not own yet."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque

import pytest

from pkg import golang
from pkg.golang.mutex import Mutex

_TIMEOUT = 30.0


def _wait_for_line(mutex: Mutex, length: int) -> None:
    ctx, cancel = golang.with_timeout(golang.background(), _TIMEOUT)
    while len(mutex._waiting) != length:
        assert not ctx.wait(0.001), "nobody came"
    cancel()


def test_one_thread_holds_it_at_a_time() -> None:
    mutex = Mutex()
    count = 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            with mutex:
                before = count
                time.sleep(0)  # Others may run meanwhile.
                count = before + 1

    threads = [golang.go(work, name=f"worker-{number}") for number in range(8)]
    for thread in threads:
        thread.join(_TIMEOUT)
    assert count == 1600
    assert not mutex.locked() and not mutex._waiting


def test_thread_that_is_woken_stays_in_line_until_it_owns_it() -> None:
    mutex, taken = Mutex(), threading.Event()

    def work() -> None:
        with mutex:
            taken.set()

    with mutex:
        thread = golang.go(work, name="waiter")
        for _ in range(3):
            _wait_for_line(mutex, 1)
            mutex._wake()
        assert not taken.wait(0.01)
    assert taken.wait(_TIMEOUT)
    thread.join(_TIMEOUT)


class Line(deque[threading.Lock]):
    """A line whose first thread is woken as soon as it stands there; `err` is what its wait raises then."""

    err: type[BaseException] | None = None

    def append(self, sleep: threading.Lock) -> None:
        super().append(sleep)
        self.remove(sleep)
        sleep.release()
        if self.err is not None:
            raise self.err


def test_thread_that_is_woken_without_need_wakes_the_next_when_it_lets_go() -> None:
    mutex, other = Mutex(), threading.Lock()
    other.acquire()
    mutex._waiting = Line([other])
    mutex._wait()
    assert mutex.locked() and other.locked()
    mutex.__exit__()
    assert not other.locked()


def test_thread_that_gives_up_when_it_was_woken_wakes_the_next() -> None:
    mutex, other = Mutex(), threading.Lock()
    other.acquire()
    mutex._waiting = line = Line([other])
    line.err = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        mutex._wait()
    assert not mutex.locked() and not other.locked() and not line


def test_thread_whose_stack_ends_does_not_keep_it() -> None:
    mutex = Mutex()
    mutex._waiting = Line()

    def take(depth: int) -> None:
        if depth:
            take(depth - 1)
        else:
            mutex._wait()
            mutex.__exit__()

    for depth in range(sys.getrecursionlimit()):
        try:
            take(depth)
        except RecursionError:
            assert not mutex.locked(), depth


def test_failure_under_it_lets_it_go() -> None:
    mutex = Mutex()
    try:
        with mutex:
            raise ValueError
    except ValueError:
        assert not mutex.locked()
