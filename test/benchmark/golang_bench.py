"""Measure the speed of channels and select.

Each function runs for about `seconds` seconds and returns operations per second.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from time import perf_counter, process_time

from pkg import golang

_BATCH = 200


def selects_with_default_per_second(seconds: float = 1.0) -> float:
    """Select with a default among 7 idle channels, as many as the kubelet's sync loop has."""
    cases: list[golang.Case] = [golang.Channel(1) for _ in range(6)]
    cases.append(golang.Ticker(3600).channel)
    return _rate(lambda: golang.select(*cases, default=True), seconds)


def selects_of_ready_per_second(seconds: float = 1.0) -> float:
    """Receive from 7 channels that are all ready."""
    cases: list[golang.Channel[None]] = [golang.Channel() for _ in range(7)]
    for case in cases:
        case.close()
    return _rate(lambda: golang.select(*cases), seconds)


def buffered_values_per_second(seconds: float = 1.0) -> float:
    """Send values through a channel with room for 100, from one thread to another."""
    return _transfer_rate(golang.Channel(100), seconds)


def hand_offs_per_second(seconds: float = 1.0) -> float:
    """Send values through an unbuffered channel, at which two threads meet for each value."""
    return _transfer_rate(golang.Channel(), seconds)


def select_hand_offs_per_second(seconds: float = 1.0) -> float:
    """Send values to a thread that receives each value in a select over 7 channels."""
    there: golang.Channel[int] = golang.Channel()
    return _select_hand_off_rate(there, there.send, seconds)


def queue_hand_offs_per_second(seconds: float = 1.0) -> float:
    """Send values to a thread that receives each value in a select over 6 channels and a plain queue."""
    there: queue.Queue[int] = queue.Queue()
    return _select_hand_off_rate(there, there.put, seconds)


def idle_select_cpu_share(seconds: float = 1.0) -> float:
    """Return the CPU seconds per second of a thread that blocks in a select over 7 channels."""
    cases: list[golang.Case] = [golang.Channel() for _ in range(6)]
    cases.append(golang.Ticker(3600).channel)
    before = process_time()
    golang.select(*cases, timeout=seconds)
    return (process_time() - before) / seconds


def _select_hand_off_rate(there: queue.Queue[int], send: Callable[[int], None], seconds: float) -> float:
    stop: golang.Channel[None] = golang.Channel()
    back: golang.Channel[int] = golang.Channel()
    idle: list[golang.Channel[int]] = [golang.Channel() for _ in range(5)]

    def answer() -> None:
        while (taken := golang.select(*idle, stop, there)).ok:
            back.send(taken.value)

    def ask() -> None:
        send(1)
        back.recv()

    thread = golang.go(answer, name="bench-answer")
    rate = _rate(ask, seconds)
    stop.close()
    thread.join()
    return rate


def _transfer_rate(channel: golang.Channel[int], seconds: float) -> float:
    stop: golang.Channel[None] = golang.Channel()

    def produce() -> None:
        while golang.select(sending := golang.Send(channel, 1), stop).took(sending):
            pass

    thread = golang.go(produce, name="bench-producer")
    rate = _rate(channel.recv, seconds)
    stop.close()
    thread.join()
    return rate


def _rate(operation: Callable[[], object], seconds: float) -> float:
    start = perf_counter()
    count = 0
    while (elapsed := perf_counter() - start) < seconds:
        for _ in range(_BATCH):
            operation()
        count += _BATCH
    return count / elapsed
