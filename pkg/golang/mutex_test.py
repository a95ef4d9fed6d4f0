"""Tests of the lock that a woken thread does not own yet."""

from __future__ import annotations

import threading
import time

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


def test_thread_that_got_it_before_it_was_woken_wakes_another() -> None:
    mutex = Mutex()
    other, own = threading.Lock(), threading.Lock()
    other.acquire()
    mutex._waiting.append(other)
    mutex._leave(own)
    assert not other.locked()


def test_failure_under_it_lets_it_go() -> None:
    mutex = Mutex()
    try:
        with mutex:
            raise ValueError
    except ValueError:
        assert not mutex.locked()
