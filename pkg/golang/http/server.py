"""Accept connections and serve each one in its own thread.

Go: net/http/server.go (Server)
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.golang import debug
from pkg.golang.contain import contain
from pkg.golang.http.hangups import HangUps
from pkg.golang.http.head import MAX_HEAD_BYTES
from pkg.golang.http.response import Handler
from pkg.golang.http.room import Limits, Room, source_of
from pkg.golang.net import hang_up
from pkg.golang.turn import Turns

if TYPE_CHECKING:
    from OpenSSL import SSL

    from pkg.golang.http.connection import Connection, Settings

_BACKLOG = 1024
# These timeouts, in seconds, apply in this order: between two requests; to a handshake or a head; while no byte of a
# body arrives; to a whole response; and while the client reads nothing of a response that is not a stream.
IDLE_TIMEOUT = 90.0
READ_HEADER_TIMEOUT = 30.0
BODY_TIMEOUT = 60.0
WRITE_TIMEOUT = 4 * 3600.0
STALL_TIMEOUT = 300.0
MAX_BODY_BYTES = 1 << 20
# At most this many threads may serve connections that were evicted but have not ended yet.
_LEAVING = 100
# When no connection can be accepted because no descriptor is free, the next attempt follows after this many seconds.
_ACCEPT_RETRY = 0.1
# The kernel probes a silent peer, whose machine may have died, after this many seconds and this many times. Go uses the
# same values.
_KEEP_ALIVE_IDLE = 15
_KEEP_ALIVE_COUNT = 9
# _MANY simultaneous connections take so much memory that it is worth returning once only _FEW are left.
_MANY = 64
_FEW = 16
# The threads of the last connections get this many seconds to end before memory is returned.
_THREADS_END = 1.0


class Server:
    """Run an HTTP server. `listen` or `listen_unix` binds, `serve` runs until `close`.

    Threads: the caller of `serve` accepts connections, and one thread serves each connection. From the first connection
    on, one more thread notices clients that disconnect.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        name: str,
        tls_context: Callable[[], SSL.Context] | None = None,
        authenticates: bool = False,
        idle_timeout: float = IDLE_TIMEOUT,
        read_header_timeout: float = READ_HEADER_TIMEOUT,
        body_timeout: float = BODY_TIMEOUT,
        write_timeout: float = WRITE_TIMEOUT,
        stall_timeout: float = STALL_TIMEOUT,
        max_header_bytes: int = MAX_HEAD_BYTES,
        max_body_bytes: int = MAX_BODY_BYTES,
        limits: Limits | None = None,
    ) -> None:
        """Create a server that does not listen yet.

        The server calls `tls_context` for each connection, so that a new certificate takes effect for the next
        connection.

        With `authenticates`, the handler calls `Request.admit` once it knows the user; until then the server may evict
        the connection. Without it, the client's address identifies the client. When there are too many connections, a
        new one replaces the one that has waited longest; if none waits, the new one is closed.

        DIVERGES (safer): in this kubelet, a client has READ_HEADER_TIMEOUT for the head, and STALL_TIMEOUT to read some
        of a response.
        Go: pkg/kubelet/server/server.go, ListenAndServeKubeletServer: the Go kubelet gives it four hours for each.
        Why: clients without credentials could hold all connections.
        Test: server_test.py:test_a_head_that_drips_is_not_waited_for,
        server_test.py:test_answer_of_which_nothing_is_taken_is_given_up_unless_it_is_a_stream
        """
        self._handler = handler
        self._name = name
        self._tls_context = tls_context
        self._limits = {
            "idle_timeout": idle_timeout,
            "read_header_timeout": read_header_timeout,
            "body_timeout": body_timeout,
            "write_timeout": write_timeout,
            "stall_timeout": stall_timeout,
        }
        self._max_header_bytes = max_header_bytes
        self._max_body_bytes = max_body_bytes
        self._authenticates = authenticates
        self._limits_of_room = limits or Limits()
        self._room: Room[Connection] = Room(self._limits_of_room, lambda connection: hang_up(connection.sock))
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._socket: socket.socket | None = None
        self._unix_path = ""
        self._settings: Settings | None = None  # Only the thread that calls `serve` uses this field.
        self._idle = threading.Event()  # The event is set unless `serve` runs.
        self._idle.set()
        self._lock = threading.Lock()
        # _lock guards these fields.
        self._connections: dict[Connection, golang.Thread] = {}
        self._were_many = False
        self._closed = False

    def listen(self, address: str, port: int) -> None:
        """Bind; port 0 chooses a free port. Raise OSError with the address if that fails."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._socket = socket.create_server(
                (address, port), family=family, backlog=_BACKLOG, dualstack_ipv6=address == "::"
            )
        except OSError as err:
            where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            raise OSError(err.errno, f"listen tcp {where}: bind: {os.strerror(err.errno or 0).lower()}") from err

    def listen_unix(self, path: str, mode: int = 0o600) -> None:
        """Bind a unix socket, replacing one that a dead process left behind. Raise OSError."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX)
        try:
            # No client can connect before `listen`, and `listen` comes after the mode is set.
            sock.bind(path)
            os.chmod(path, mode)
            sock.listen(_BACKLOG)
        except OSError:
            sock.close()
            raise
        self._socket = sock
        self._unix_path = path

    @property
    def port(self) -> int:
        """Return the TCP port that `listen` has bound."""
        assert self._socket is not None
        port: int = self._socket.getsockname()[1]
        return port

    def serve(self, ctx: golang.Context | None = None) -> None:
        """Accept connections until ctx is cancelled or `close` is called. Return when all connections have ended."""
        with self._lock:
            if self._closed or self._socket is None:
                return
            self._idle.clear()
        stop = golang.after_func(ctx or golang.background(), self._interrupt)
        try:
            while (accepted := self._accept(self._socket)) is not None:
                self._start_or_refuse(*accepted)
        finally:
            stop()
            self._end()
            self._idle.set()

    def close(self) -> None:
        """End all connections. Return when their threads have ended and the port is free."""
        self._interrupt()
        self._idle.wait()
        # A server that has never served still has its socket open.
        self._end()

    def _interrupt(self) -> None:
        """Make `serve` return, and end what handlers wait for."""
        with self._lock:
            self._closed = True
        self._cancel()
        if self._socket is not None:
            hang_up(self._socket)

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            hang_up(connection.sock)
        for thread in connections.values():
            thread.join()
        if self._settings is not None:
            self._settings.hang_ups.close()
            self._settings = None
        if self._unix_path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._unix_path)
            # `close` runs this step again, when the path may already belong to the next server.
            self._unix_path = ""

    def connections(self) -> int:
        """Return the number of connections."""
        with self._lock:
            return len(self._connections)

    def _accept(self, listening: socket.socket) -> tuple[socket.socket, tuple[str, int] | None] | None:
        """Return the next connection, or None when the server closes."""
        while True:
            try:
                sock, address = listening.accept()
            except Exception as err:
                # Any cause, such as a lack of descriptors or memory, may be gone at the next attempt.
                if self._ctx.err() is not None:
                    return None
                klog.error_s(err, "Failed to accept a connection, retrying", server=self._name)
                self._ctx.wait(_ACCEPT_RETRY)
                continue
            if listening.family == socket.AF_UNIX:
                return sock, None
            return sock, (address[0], address[1])

    def _start_or_refuse(self, sock: socket.socket, address: tuple[str, int] | None) -> None:
        try:
            if address is not None:
                _keep_alive(sock)
            self._start(sock, address)
        except Exception as err:
            # No descriptor, memory or thread is left for this client. The other clients must still be served.
            klog.error_s(err, "Failed to serve a connection", server=self._name)
            sock.close()

    def _start(self, sock: socket.socket, address: tuple[str, int] | None) -> None:
        """Start a thread for the connection. Raise OSError or RuntimeError if no descriptor or thread is available."""
        # Loading TLS and streams takes time, so a server does it only when a client connects.
        from pkg.golang.http.connection import Connection

        connection = Connection(self._make_settings(), sock, address)
        with self._lock:
            if self._closed or not self._enter_locked(connection, source_of(address)):
                sock.close()
                return
            self._were_many |= len(self._connections) >= _MANY
            # The lock is held while the thread starts, so that `close` finds the thread to wait for.
            try:
                self._connections[connection] = golang.go(self._run, connection, name=f"{self._name}-connection")
            except BaseException:
                self._room.leave(connection)
                raise

    def _enter_locked(self, connection: Connection, source: str) -> bool:
        limit = self._limits_of_room.connections
        if len(self._connections) < limit + _LEAVING and self._room.enter(connection, source):
            return True
        klog.warning_s("Too many connections, refusing another one", server=self._name, limit=limit)
        return False

    def _make_settings(self) -> Settings:
        """Return the settings. The first call also starts the thread that notices clients that disconnect."""
        from pkg.golang.http.connection import Settings

        if self._settings is None:
            self._settings = Settings(
                handler=self._handler,
                tls_context=self._tls_context,
                ctx=self._ctx,
                room=self._room,
                parsing=threading.Lock(),
                turns=Turns(),
                authenticates=self._authenticates,
                hang_ups=HangUps(f"{self._name}-hang-ups"),
                max_header_bytes=self._max_header_bytes,
                max_body_bytes=self._max_body_bytes,
                **self._limits,
            )
        return self._settings

    def _run(self, connection: Connection) -> None:
        try:
            with contain("Failed to serve a connection", server=self._name):
                connection.serve()
        finally:
            connection.sock.close()
            self._room.leave(connection)
            with contain("Failed to return memory to the system", server=self._name):
                self._give_memory_back_after_a_crowd()
            with self._lock:
                self._connections.pop(connection, None)

    def _give_memory_back_after_a_crowd(self) -> None:
        with self._lock:
            calm_again = self._were_many and len(self._connections) <= _FEW
            self._were_many &= not calm_again
        if calm_again:
            # The memory of the connections is freed only when their threads end.
            self._ctx.wait(_THREADS_END)
            debug.free_os_memory()


def _keep_alive(sock: socket.socket) -> None:
    """Configure TCP keep-alive. Raise OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEP_ALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEP_ALIVE_COUNT)
