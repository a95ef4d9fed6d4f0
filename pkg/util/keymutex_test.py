"""Test locks by key."""

from __future__ import annotations

import threading

from pkg import golang
from pkg.util.keymutex import KeyMutex


def test_one_holds_a_key_at_a_time_and_others_are_free() -> None:
    mutex, order = KeyMutex(), list[str]()
    asks = threading.Event()

    def second() -> None:
        asks.set()
        with mutex.locked("a"):
            order.append("second")

    with mutex.locked("a"):
        thread = golang.go(second, name="second")
        assert asks.wait(30)
        with mutex.locked("b"):
            assert mutex.held() == {"a", "b"}
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_keys_that_nobody_uses_are_forgotten() -> None:
    mutex = KeyMutex()
    for number in range(1000):
        with mutex.locked(str(number)):
            assert mutex.held() == {str(number)}
    assert mutex.held() == set()
