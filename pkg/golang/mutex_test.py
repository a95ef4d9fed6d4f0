"""Test the Mutex, which a woken thread does not own yet."""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict

import pytest
from framework.waiting import wait_until_equal

from pkg import golang
from pkg.golang.mutex import Mutex

_TIMEOUT = 30.0


def test_one_thread_holds_it_at_a_time() -> None:
    mutex = Mutex()
    count = 0

    def work() -> None:
        nonlocal count
        for _ in range(200):
            with mutex:
                before = count
                time.sleep(0)  # Other threads may run at this point.
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
            wait_until_equal("threads in line", lambda: len(mutex._waiting), 1)
            mutex._waiting.popitem(last=False)[0].release()
        assert not taken.wait(0.01)
    assert taken.wait(_TIMEOUT)
    thread.join(_TIMEOUT)


class Line(OrderedDict[threading.Lock, None]):
    """Wake each thread as soon as it joins the queue; with `err`, make its wait raise `err`."""

    err: type[BaseException] | None = None

    def __setitem__(self, sleep: threading.Lock, value: None) -> None:
        sleep.release()
        if self.err is not None:
            raise self.err


def _sleeper(line: OrderedDict[threading.Lock, None]) -> threading.Lock:
    """Return the lock of a thread that waits in the queue."""
    sleep = threading.Lock()
    sleep.acquire()
    OrderedDict.__setitem__(line, sleep, None)
    return sleep


def test_thread_that_is_woken_without_need_wakes_the_next_when_it_lets_go() -> None:
    mutex = Mutex()
    mutex._waiting = Line()
    other = _sleeper(mutex._waiting)
    mutex._wait()
    assert mutex.locked() and other.locked()
    mutex.__exit__()
    assert not other.locked()


def test_thread_that_gives_up_when_it_was_woken_wakes_the_next() -> None:
    mutex = Mutex()
    mutex._waiting = line = Line()
    other = _sleeper(line)
    line.err = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        mutex._wait()
    assert not mutex.locked() and not other.locked() and not line


def _take(mutex: Mutex, depth: int) -> bool:
    """Report whether the stack is large enough to take the Mutex at this depth."""
    taken = False

    def descend(depth: int) -> None:
        nonlocal taken
        if depth:
            descend(depth - 1)
        else:
            with mutex:
                taken = True

    try:
        descend(depth)
    except RecursionError:
        pass
    return taken


def test_thread_whose_stack_ends_does_not_keep_it() -> None:
    """A thread does not keep the Mutex if its stack ends after it was woken and other threads have run in between."""
    for depth in range(sys.getrecursionlimit() - 20, sys.getrecursionlimit()):
        mutex = Mutex()
        with mutex:
            thread = golang.go(_take, mutex, depth, name="waiter")
            while thread.is_alive() and not mutex._waiting:
                thread.join(0.001)
            other = _sleeper(mutex._waiting)
        thread.join(_TIMEOUT)
        assert not thread.is_alive() and not mutex.locked() and not other.locked(), depth


def test_thread_whose_stack_ends_wakes_the_next() -> None:
    for depth in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
        mutex = Mutex()
        other = _sleeper(mutex._waiting)
        taken = _take(mutex, depth)
        assert not mutex.locked() and other.locked() != taken, depth


def test_failure_under_it_lets_it_go() -> None:
    mutex = Mutex()
    try:
        with mutex:
            raise ValueError
    except ValueError:
        assert not mutex.locked()
