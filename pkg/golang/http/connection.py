"""The requests on one connection.

Go: net/http/server.go (conn.serve)
"""

from __future__ import annotations

import contextlib
import functools
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11

from pkg import golang, klog
from pkg.golang.http.conn import Conn, PlainConn, linger
from pkg.golang.http.hangups import HangUps
from pkg.golang.http.headers import Headers
from pkg.golang.http.request import BadRequest, Body, Request, parse_target
from pkg.golang.http.response import ClientGone, Handler, HTTPError, ResponseWriter, error
from pkg.golang.http.status import status_text

if TYPE_CHECKING:
    from OpenSSL import SSL

_CHUNK = 1 << 16
# Seconds in which a client may still read why its connection is ended.
_LINGER = 0.5
# Of a body that the handler did not read.
_MAX_SKIPPED_BYTES = 256 << 10
_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@dataclass(frozen=True, slots=True)
class Settings:
    """What all connections of a server share. Times are in seconds."""

    handler: Handler
    tls_context: Callable[[], SSL.Context] | None
    ctx: golang.Context
    hang_ups: HangUps
    idle_timeout: float
    read_header_timeout: float
    body_timeout: float
    write_timeout: float
    max_header_bytes: int
    max_body_bytes: int


class Connection:
    """Serves one client after the other's request in the thread that calls `serve`."""

    def __init__(self, settings: Settings, sock: socket.socket, remote_addr: tuple[str, int] | None) -> None:
        self.sock = sock
        self.busy = False
        """Whether a request is being served, so that ending the connection would do harm."""
        self._settings = settings
        self._remote_addr = remote_addr
        self._peer_certificates: list[bytes] = []
        self._conn: Conn = PlainConn(sock)
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=settings.max_header_bytes)

    def serve(self) -> None:
        """Until the client has gone or did what ends a connection; closes the socket."""
        try:
            if self._settings.tls_context is not None:
                self._handshake(self._settings.tls_context)
            # The first request has to come at once, a later one may take its time.
            going_on = self._serve_request(self._settings.read_header_timeout)
            while going_on:
                going_on = self._serve_request(self._settings.idle_timeout)
        except OSError as err:
            klog.v(4).info_s("Connection ended", remoteAddr=self._remote_addr, err=str(err))
        except Exception as err:  # as Go's recover: one connection's end is not that of the process
            klog.error_s(err, "Observed a panic while serving a connection", stacktrace=klog.stacktrace(err))
        finally:
            self._conn.close()

    def _handshake(self, tls_context: Callable[[], SSL.Context]) -> None:
        # Loading OpenSSL takes a while: only servers with TLS do it.
        from pkg.golang.http import tlsconn

        try:
            conn = tlsconn.TLSConn(tls_context(), self.sock)
            conn.set_deadline(time.monotonic() + self._settings.read_header_timeout)
            conn.handshake()
        except tlsconn.PlainHTTPError:
            self._conn.sendall(_PLAIN_HTTP)
            linger(self._conn, _LINGER)
            raise
        except OSError as err:
            klog.v(2).info_s("TLS handshake error", remoteAddr=self._remote_addr, err=str(err))
            raise
        self._peer_certificates = conn.peer_certificates()
        self._conn = conn

    def _serve_request(self, timeout: float) -> bool:
        """Returns whether another request may follow. Raises OSError."""
        try:
            event = self._read_head(timeout)
        except h11.RemoteProtocolError as err:
            self._refuse(err.error_status_hint)
            return False
        if event is None:
            return False
        if event.http_version not in (b"1.0", b"1.1"):
            self._refuse(505)
            return False
        if event.method == b"CONNECT":
            # DIVERGES: Go's handlers answer it as any method. To clients a success opens a tunnel, and there is none.
            self._refuse(405)
            return False
        self.busy = True
        self._conn.set_deadline(time.monotonic() + self._settings.write_timeout)
        hijacked = self._respond(event)
        self.busy = False
        return not hijacked and self._next_cycle()

    def _read_head(self, timeout: float) -> h11.Request | None:
        """None when the client has gone instead. Raises TimeoutError, OSError or h11.RemoteProtocolError."""
        self._conn.set_deadline(time.monotonic() + timeout)
        started = bool(self._h11.trailing_data[0])
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            self._h11.receive_data(self._conn.recv(_CHUNK))
            if not started:
                started = True
                # For the whole head, however slowly it drips.
                self._conn.set_deadline(time.monotonic() + self._settings.read_header_timeout)

    def _respond(self, event: h11.Request) -> bool:
        """Returns whether the handler has taken the connection over. Raises OSError."""
        ctx, cancel = golang.with_cancel(self._settings.ctx)
        w = ResponseWriter(self, head=event.method == b"HEAD")
        self._settings.hang_ups.add(self.sock.fileno(), cancel)
        try:
            run_handler(self._settings.handler, w, functools.partial(self._request, event, ctx))
            w.finish()
            return w.hijacked
        except h11.LocalProtocolError as err:
            # A handler that wrote less or more than it had announced; the client has to see that it is no whole.
            raise ClientGone(str(err)) from err
        finally:
            self._settings.hang_ups.remove(self.sock.fileno())
            cancel()

    def _request(self, event: h11.Request, ctx: golang.Context) -> Request:
        target = event.target.decode("latin-1")
        path, query = parse_target(target)
        return Request(
            method=event.method.decode("latin-1"),
            target=target,
            path=path,
            query=query,
            headers=Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in event.headers),
            body=Body(self._next_part, self._settings.max_body_bytes),
            remote_addr=self._remote_addr,
            peer_certificates=self._peer_certificates,
            tls=self._settings.tls_context is not None,
            ctx=ctx,
        )

    def _next_part(self) -> bytes:
        """The next part of the body, b"" at its end. Raises OSError or BadRequest."""
        if self._h11.they_are_waiting_for_100_continue:
            self._send(h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue"))
        self._conn.set_deadline(time.monotonic() + self._settings.body_timeout)
        try:
            while True:
                event = self._h11.next_event()
                if event is h11.NEED_DATA:
                    self._h11.receive_data(self._conn.recv(_CHUNK))
                elif not isinstance(event, h11.Data):
                    return b""
                elif event.data:
                    return bytes(event.data)
        except h11.RemoteProtocolError as err:
            raise BadRequest(str(err)) from err
        except TimeoutError as err:
            raise HTTPError(408, "Request Timeout") from err
        finally:
            self._conn.set_deadline(time.monotonic() + self._settings.write_timeout)

    def _next_cycle(self) -> bool:
        """Ready for the next request, unless this one's body is too long or too slow to be read to its end."""
        with contextlib.suppress(h11.RemoteProtocolError, TimeoutError):
            self._skip_body()
        if self._h11.their_state not in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            linger(self._conn, _LINGER)
            return False
        if self._h11.our_state is not h11.DONE or self._h11.their_state is not h11.DONE:
            return False
        self._h11.start_next_cycle()
        return True

    def _skip_body(self) -> None:
        """Read what the handler did not want: a client that has just sent it would find the connection cut."""
        self._conn.set_deadline(time.monotonic() + _LINGER)
        skipped = 0
        while skipped < _MAX_SKIPPED_BYTES and not self._h11.they_are_waiting_for_100_continue:
            event = self._h11.next_event()
            if event is h11.NEED_DATA:
                data = self._conn.recv(_CHUNK)
                skipped += len(data)
                self._h11.receive_data(data)
            elif not isinstance(event, h11.Data | h11.EndOfMessage):
                return

    def _refuse(self, status: int) -> None:
        """Answer what is no HTTP, past the machinery for what is."""
        text = f"{status} {status_text(status)}"
        head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        self._conn.set_deadline(time.monotonic() + _LINGER)
        self._conn.sendall(f"{head}{text}".encode())
        linger(self._conn, _LINGER)

    # How a ResponseWriter sends.

    def start(self, status: int, headers: Headers, first: bytes) -> None:
        fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in headers.items()]
        if "Date" not in headers:
            fields.append((b"Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()).encode()))
        head = h11.Response(status_code=status, headers=fields, reason=status_text(status).encode())
        self._send(head, *([h11.Data(data=first)] if first else []))

    def data(self, data: bytes) -> None:
        self._send(h11.Data(data=data))

    def end(self) -> None:
        self._send(h11.EndOfMessage())

    def hijack(self) -> tuple[Conn, bytes]:
        self._settings.hang_ups.remove(self.sock.fileno())
        self._conn.set_deadline(None)
        return self._conn, self._h11.trailing_data[0]

    def _send(self, *events: h11.Event) -> None:
        try:
            if data := b"".join(self._h11.send(event) or b"" for event in events):
                self._conn.sendall(data)
        except OSError as err:
            raise ClientGone(f"client has gone: {err}") from err


def run_handler(handler: Handler, w: ResponseWriter, make_request: Callable[[], Request]) -> None:
    """Have a request answered whatever the handler does. Raises ClientGone when there is nobody to tell more."""
    try:
        request = make_request()
        handler(w, request)
    except ClientGone:
        raise
    except golang.ContextError as err:
        raise ClientGone(str(err)) from err
    except HTTPError as err:
        _replace(w, str(err), err.code)
    except BadRequest:
        w.headers.set("Connection", "close")
        _replace(w, "400 Bad Request", 400)
    except Exception as err:  # as Go's recover: the fault of one request must not end the others
        klog.error_s(err, "Observed a panic while serving a request", stacktrace=klog.stacktrace(err))
        # What went wrong is for the log, not for the client.
        _replace(w, "Internal Server Error", 500)


def _replace(w: ResponseWriter, text: str, code: int) -> None:
    if w.started:
        raise ClientGone(f"response was cut short: {text}")
    w.reset()
    error(w, text, code)
