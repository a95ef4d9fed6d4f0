"""Provide the threads of a gRPC server. Go's grpc package has a goroutine for each call."""

from __future__ import annotations

import threading
from concurrent import futures

import grpc
from grpc import _server

from pkg import golang

# MAX_THREADS is the maximum number of threads of a server. A call occupies a thread while it waits for its request or
# for a plugin.
# DIVERGES (platform): when MAX_THREADS gRPC calls to the kubelet run, a further call waits until one of them ends.
# Go: google.golang.org/grpc/server.go, (*Server).serveStreams: the Go server starts a goroutine for each call, without
# a limit.
# Why: in Python each call needs a thread, and the number of threads of a process is limited.
# Test: pool_test.py:test_no_more_calls_run_than_there_may_be_threads
MAX_THREADS = 100


class _Pool(futures.ThreadPoolExecutor):
    """Run calls on at least `workers` threads, and on as many more as the calls need and the machine allows."""

    def __init__(self, workers: int, name: str) -> None:
        super().__init__(MAX_THREADS, name)
        self._workers = workers
        # This number counts calls that got no new thread. At the end of each, the library counts one idle thread too
        # many.
        self._without_thread = 0

    def _adjust_thread_count(self) -> None:
        while self._without_thread and self._idle_semaphore.acquire(blocking=False):
            self._without_thread -= 1
        try:
            super()._adjust_thread_count()
        except (RuntimeError, MemoryError):
            # The call is in the queue, and one of the existing threads will run it.
            if len(self._threads) < self._workers:
                raise
            self._without_thread += 1


def new_thread_pool(workers: int, name: str) -> futures.ThreadPoolExecutor:
    """Return a pool for a gRPC server that has `workers` running threads. Raise golang.ThreadError.

    The pool starts more threads, up to MAX_THREADS, as calls need them. A pool without threads would start its first
    one at the first call. If the machine had no free thread then, the error would end gRPC's polling thread, and with
    it the process.
    """
    pool = _Pool(workers, name)
    # The barrier keeps each thread busy until all have started; otherwise one thread could run all tasks.
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
    """Start a server. If there is no free thread, raise golang.ThreadError and clean up the server."""
    try:
        server.start()
    except (RuntimeError, MemoryError) as err:
        state = server._state  # type: ignore[attr-defined]
        # The server listens already. `stop` would wait for the missing thread, so this code does that thread's work.
        _server._begin_shutdown_once(state)
        if state.stage is _server._ServerStage.GRACE:
            _server._serve(state)
        raise golang.ThreadError(f"start the thread of a server: {err or 'out of memory'}") from err
