"""The threads of a gRPC server. Go's grpc package has a goroutine for each call."""

from __future__ import annotations

import threading
from concurrent import futures

import grpc
from grpc import _server

from pkg import golang

# Threads of one server. A call has one for as long as it waits: for its request, or for the plugin that it is about.
# DIVERGES (platform): a gRPC call to the kubelet beyond MAX_THREADS others waits until one of them ends.
# Go: google.golang.org/grpc/server.go, (*Server).serveStreams: has a goroutine for each call, without a bound.
# Why: in Python each call needs a thread, and the process may only have so many.
# Test: pool_test.py:test_no_more_calls_run_than_there_may_be_threads
MAX_THREADS = 100


class _Pool(futures.ThreadPoolExecutor):
    """Has so many threads at least, and while there are more calls, as many as the machine lets it have."""

    def __init__(self, workers: int, name: str) -> None:
        super().__init__(MAX_THREADS, name)
        self._workers = workers
        # Calls that got no thread of their own. Each has the library count one idle thread too many when it ends.
        self._without_thread = 0

    def _adjust_thread_count(self) -> None:
        while self._without_thread and self._idle_semaphore.acquire(blocking=False):
            self._without_thread -= 1
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            # The call is in the queue, and one of the threads that there are will take it.
            if len(self._threads) < self._workers:
                raise
            self._without_thread += 1


def new_thread_pool(workers: int, name: str) -> futures.ThreadPoolExecutor:
    """A pool for a gRPC server, with so many threads running. Raises golang.ThreadError.

    It starts more, up to MAX_THREADS, as calls need them. By itself a pool would have none before there is a call.
    Where the machine has no more threads by then, that raises in the thread in which gRPC takes all calls, which ends,
    and the process with it.
    """
    pool = _Pool(workers, name)
    # Nobody passes before all are there: else one thread could do for all that is submitted.
    all_run = threading.Barrier(workers)
    try:
        for _ in range(workers):
            pool.submit(all_run.wait)
    except (RuntimeError, MemoryError) as err:
        all_run.abort()
        pool.shutdown(wait=False)
        raise golang.ThreadError(f"start {workers} threads {name!r} of a server: {err or 'out of memory'}") from err
    return pool


def start(server: grpc.Server) -> None:
    """Start a server. Raises golang.ThreadError when there is no thread for it, and then nothing of it is left."""
    try:
        server.start()
    except (RuntimeError, MemoryError) as err:
        state = server._state  # type: ignore[attr-defined]
        # It listens already. `stop` would wait for the thread that is missing, whose work is done here.
        _server._begin_shutdown_once(state)
        if state.stage is _server._ServerStage.GRACE:
            _server._serve(state)
        raise golang.ThreadError(f"start the thread of a server: {err or 'out of memory'}") from err
