"""Serve a test driver on two sockets until SIGTERM."""

from __future__ import annotations

import signal
import threading
from concurrent import futures
from pathlib import Path

import grpc

# A call that waits occupies a thread.
_THREADS = 100


def ended_by_signal() -> threading.Event:
    """Return an event that is set when SIGTERM or SIGINT arrives."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    return ended


def listen(socket: Path) -> grpc.Server:
    """Listen on a socket, and replace the socket of a driver that was killed."""
    socket.unlink(missing_ok=True)
    server = grpc.server(futures.ThreadPoolExecutor(_THREADS))
    server.add_insecure_port(f"unix://{socket}")
    return server


def serve(driver: grpc.Server, registrar: grpc.Server, registration: Path, ended: threading.Event) -> None:
    """Serve until the event is set. `registration` is the registrar's socket, where kubelets find the driver."""
    driver.start()
    registrar.start()
    print("serving", flush=True)
    ended.wait()
    registration.unlink(missing_ok=True)
    for each in (registrar, driver):
        each.stop(grace=1).wait()
