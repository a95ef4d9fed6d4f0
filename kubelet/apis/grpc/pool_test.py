"""Test the threads of gRPC servers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from framework.waiting import threads_named

from kubelet.apis import grpc as apisgrpc
from kubelet.apis.grpc import pool as grpcpool
from pkg import golang
from pkg.golang.testing import out_of_threads_here


def test_all_threads_run_before_there_is_anything_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = apisgrpc.new_thread_pool(3, "test-pool")
    assert len(threads_named("test-pool")) == 3

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
    assert threads_named("test-pool") == []


def test_more_calls_than_threads_get_more_threads() -> None:
    pool, meeting = apisgrpc.new_thread_pool(2, "test-pool"), threading.Barrier(5)
    assert sorted(call.result(30) for call in [pool.submit(meeting.wait, 30) for _ in range(5)]) == list(range(5))
    pool.shutdown()


def test_no_more_calls_run_than_there_may_be_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grpcpool, "MAX_THREADS", 2)
    pool, may_go_on = apisgrpc.new_thread_pool(1, "test-pool"), threading.Event()
    calls = [pool.submit(may_go_on.wait, 30) for _ in range(5)]
    assert len(threads_named("test-pool")) == 2
    may_go_on.set()
    assert [call.result(30) for call in calls] == [True] * 5
    pool.shutdown()


def test_calls_wait_for_the_threads_that_there_are() -> None:
    pool, may_go_on = apisgrpc.new_thread_pool(1, "test-pool"), threading.Event()
    with out_of_threads_here():
        calls = [pool.submit(may_go_on.wait, 30) for _ in range(3)]
    may_go_on.set()
    assert [call.result(30) for call in calls] == [True] * 3
    pool.shutdown()


def test_calls_get_threads_again_once_the_machine_has_some() -> None:
    """Calls without a thread of their own do not count as idle threads later."""
    pool, may_go_on = apisgrpc.new_thread_pool(1, "test-pool"), threading.Event()
    with out_of_threads_here():
        calls = [pool.submit(may_go_on.wait, 30) for _ in range(10)]
    may_go_on.set()
    assert [call.result(30) for call in calls] == [True] * 10
    meeting = threading.Barrier(3)
    assert sorted(call.result(30) for call in [pool.submit(meeting.wait, 30) for _ in range(3)]) == [0, 1, 2]
    pool.shutdown()


def test_server_that_finds_no_thread_leaves_nothing(tmp_path: Path) -> None:
    """A server that gets no thread cleans up. Otherwise `stop` would wait for that thread without end."""
    pool = apisgrpc.new_thread_pool(1, "test-pool")
    server, path = grpc.server(pool), f"{tmp_path}/s.sock"
    server.add_insecure_port(f"unix:{path}")
    with out_of_threads_here(), pytest.raises(golang.ThreadError, match="start the thread of a server: can't start"):
        apisgrpc.start(server)
    assert server.stop(None).wait(30)
    pool.shutdown()
    with socket.socket(socket.AF_UNIX) as client, pytest.raises(OSError, match=r"No such file|refused"):
        client.connect(path)
