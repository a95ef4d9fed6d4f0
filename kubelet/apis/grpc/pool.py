"""The threads of a gRPC server. Go's grpc package has a goroutine for each call."""

from __future__ import annotations

import threading
from concurrent import futures

import grpc
from grpc import _server

from pkg import golang


def new_thread_pool(workers: int, name: str) -> futures.ThreadPoolExecutor:
    """A pool for a gRPC server, with all its threads running. Raises golang.ThreadError.

    By itself a pool starts a thread when there is a call for it. Where the machine has no more threads by then, that
    raises in the thread in which gRPC takes all calls, which ends, and the process with it.
    """
    pool = futures.ThreadPoolExecutor(workers, name)
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
