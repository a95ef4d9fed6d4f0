"""Tests of the threads of gRPC servers."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kubelet.apis import grpc as apisgrpc
from pkg import golang


def _threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("test-pool")]


def test_all_threads_run_before_there_is_anything_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = apisgrpc.new_thread_pool(3, "test-pool")
    assert len(_threads()) == 3

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    meeting = threading.Barrier(3)
    assert sorted(call.result(30) for call in [pool.submit(meeting.wait, 30) for _ in range(3)]) == [0, 1, 2]
    pool.shutdown()


def test_pool_that_finds_no_threads_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    start: Callable[[threading.Thread], None] = threading.Thread.start
    started: list[threading.Thread] = []

    def refuse_the_third(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_the_third)
    with pytest.raises(golang.ThreadError, match="test-pool"):
        apisgrpc.new_thread_pool(3, "test-pool")
    for thread in started:
        thread.join(30)
    assert _threads() == []
