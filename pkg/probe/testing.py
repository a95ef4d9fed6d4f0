"""Run a server on this machine for tests of probes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

HOST = "127.0.0.1"


@contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve connections one after the other with `talk`; yield the port of the server."""
    with socket.create_server((HOST, 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
