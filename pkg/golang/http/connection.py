"""Serve the requests on one connection.

Go: net/http/server.go (conn.serve)
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from pkg import golang, klog
from pkg.golang.http.conn import Conn, PlainConn, WaitingConn, linger
from pkg.golang.http.hangups import HangUps
from pkg.golang.http.head import HEAD_END, Head, MalformedError, parse_head
from pkg.golang.http.headers import Headers
from pkg.golang.http.request import BadRequest, Body, Request, parse_path
from pkg.golang.http.response import ClientGone, Handler, HTTPError, ResponseWriter, error
from pkg.golang.http.room import Room, source_of
from pkg.golang.http.status import status_text
from pkg.golang.http.transfer import MessageBody, ResponseFrame, Source
from pkg.golang.turn import Turn, Turns

if TYPE_CHECKING:
    from OpenSSL import SSL

    from pkg.golang.http.tlsconn import TLSConn

# A client gets this many seconds to read why its connection ends.
_LINGER = 0.5
# A client gets this many seconds to receive a response that is a redirect or a refusal.
REFUSAL_WRITE_TIMEOUT = 10.0
# One client certificate costs this much memory, mostly in OpenSSL. Each byte beyond the usual size of a client
# certificate costs more: OpenSSL needs a hundred bytes for a name of two bytes.
CERTIFICATE_COST_BYTES = 20 << 10
LARGE_CERTIFICATE_BYTES = 2 << 10
COST_OF_LARGE_BYTES = 64
# The server skips a longer remainder of an unread body by ending the connection.
MAX_SKIPPED_BYTES = 256 << 10
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


W = TypeVar("W", bound=WaitingConn)


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold what all connections of a server share. Times are in seconds."""

    handler: Handler
    tls_context: Callable[[], SSL.Context] | None
    ctx: golang.Context
    hang_ups: HangUps
    room: Room[Connection]
    parsing: threading.Lock
    """A connection holds this lock while it parses a head, which temporarily takes several times the head's size."""
    turns: Turns
    """A connection holds a turn while the server works for its client before the client is authenticated."""
    authenticates: bool
    idle_timeout: float
    read_header_timeout: float
    body_timeout: float
    write_timeout: float
    stall_timeout: float
    max_header_bytes: int
    max_body_bytes: int


class Connection:
    """Serve the requests of one client, one after the other, in the thread that calls `serve`."""

    def __init__(self, settings: Settings, sock: socket.socket, remote_addr: tuple[str, int] | None) -> None:
        self.sock = sock
        self._settings = settings
        self._remote_addr = remote_addr
        self._peer_certificates: list[bytes] = []
        self._turn = Turn(settings.turns)
        self._conn: Conn = self._taking_turns(PlainConn(sock))
        # The source refers to the connection and not to this object: a reference cycle would keep the received bytes
        # until the garbage collector runs.
        self._source = Source(self._conn)
        # These fields belong to the request that is being served.
        self._body: MessageBody
        self._frame: ResponseFrame
        self._is_to_continue = False

    def serve(self) -> None:
        """Serve requests until the client disconnects or its behaviour ends the connection; then close the socket."""
        with self._turn:
            self._serve()

    def _taking_turns(self, conn: W) -> W:
        conn.meanwhile = self._turn.let_others
        return conn

    def _serve(self) -> None:
        try:
            if self._settings.tls_context is not None:
                self._handshake(self._settings.tls_context)
            # The first request must arrive at once; later ones may be slow.
            going_on = self._serve_request(self._settings.read_header_timeout)
            while going_on:
                going_on = self._serve_request(self._settings.idle_timeout)
        except OSError as err:
            klog.v(4).info_s("Connection ended", remoteAddr=self._remote_addr, err=str(err))
        except Exception as err:  # Like the recover in Go: a failure of one connection must not end the process.
            klog.error_s(err, "Observed a panic while serving a connection", stacktrace=klog.stacktrace(err))
        finally:
            self._conn.close()
            # Room gives this connection's memory to other connections next, so free the memory first.
            self._source.received.clear()

    def _handshake(self, tls_context: Callable[[], SSL.Context]) -> None:
        # Loading OpenSSL takes time, so only servers with TLS load it.
        from pkg.golang.http import tlsconn

        try:
            conn = self._taking_turns(tlsconn.TLSConn(tls_context(), self.sock))
            conn.set_deadline(time.monotonic() + self._settings.read_header_timeout)
            conn.handshake(lambda: self._hold_shown(conn))
        except tlsconn.PlainHTTPError:
            self._dismiss(_PLAIN_HTTP)
            raise
        except OSError as err:
            klog.v(2).info_s("TLS handshake error", remoteAddr=self._remote_addr, err=str(err))
            raise
        self._peer_certificates = conn.peer_certificates()
        self._conn = self._source.conn = conn
        self._hold()

    def _hold_shown(self, conn: TLSConn) -> None:
        """Account for certificates as soon as they arrive, because a client may delay the proof that it owns them."""
        if not self._peer_certificates:
            self._peer_certificates = conn.peer_certificates()
            if self._peer_certificates:
                self._hold()

    def _hold(self) -> None:
        """Account for the memory that an unauthenticated client uses. Raise ClientGone if that was too much."""
        certificates = sum(map(_cost, self._peer_certificates))
        with self._turn.let_others():
            self._settings.room.hold(self, len(self._source.received) + certificates)

    def _serve_request(self, timeout: float) -> bool:
        """Serve one request and report whether another one may follow. Raise OSError if the connection fails."""
        try:
            head = self._read_head(timeout)
        except MalformedError as err:
            self._refuse(err.status)
            return False
        if head is None:
            return False
        if head.method == "CONNECT":
            # DIVERGES (safer): this kubelet responds to CONNECT with 405.
            # Go: net/http/server.go, (*ServeMux).findHandler: in the Go kubelet, the handlers respond to CONNECT as to
            # any other method.
            # Why: a client treats a success as the opening of a tunnel, and this server has no tunnels.
            # Test: server_test.py:test_bad_requests
            self._refuse(405)
            return False
        with self._turn.let_others():
            is_http = self._answer(head)
        return is_http and self._may_go_on()

    def _answer(self, head: Head) -> bool:
        """Respond to the request and report whether the connection still speaks HTTP.

        Raise OSError if the connection fails.
        """
        self._conn.set_deadline(time.monotonic() + self._settings.write_timeout)
        self._conn.settimeout(self._settings.stall_timeout)
        hijacked = self._respond(head)
        self._settings.room.rest(self)
        return not hijacked

    def _read_head(self, timeout: float) -> Head | None:
        """Return the next head, or None if the client has disconnected.

        Raise TimeoutError, OSError or MalformedError.
        """
        self._conn.set_deadline(
            time.monotonic() + (self._settings.read_header_timeout if self._source.received else timeout)
        )
        searched = 0
        while (end := HEAD_END.search(self._source.received, max(searched - 2, 0))) is None:
            searched = len(self._source.received)
            if searched > self._settings.max_header_bytes:
                raise MalformedError(431)
            # No request begins with such a byte, but TLS does, and a TLS client would now wait for a response.
            if searched and self._source.received[0] <= ord(" "):
                raise MalformedError(400)
            if not self._source.more():
                if searched:
                    raise MalformedError(400)
                return None
            if not searched:
                # This deadline is for the whole head, even if the head arrives byte by byte.
                self._conn.set_deadline(time.monotonic() + self._settings.read_header_timeout)
            self._hold()
        if end.end() > self._settings.max_header_bytes:
            raise MalformedError(431)
        self._hold()
        with self._settings.parsing:
            head = parse_head(self._source.received[: end.end()])
        del self._source.received[: end.end()]
        return head

    def _respond(self, head: Head) -> bool:
        """Run the handler and report whether it has taken the connection over.

        Raise OSError if the connection fails.
        """
        ctx, cancel = golang.with_cancel(self._settings.ctx)
        self._body, self._frame = MessageBody(head.content_length, self._source), ResponseFrame(head)
        self._is_to_continue = head.expects_continue and not self._body.ended
        w = ResponseWriter(self, head=head.method == "HEAD")
        try:
            self._settings.hang_ups.add(self.sock.fileno(), cancel)
            run_handler(self._settings.handler, w, functools.partial(self._request, head, ctx))
            w.finish()
            return w.hijacked
        finally:
            self._settings.hang_ups.remove(self.sock.fileno())
            cancel()

    def _request(self, head: Head, ctx: golang.Context) -> Request:
        admit = functools.partial(self._settings.room.admit, self)
        if not self._settings.authenticates:
            admit(source_of(self._remote_addr), "", lasting=False)
        return Request(
            method=head.method,
            target=head.target,
            path=parse_path(head.target),
            headers=head.headers,
            body=Body(self._next_part, self._settings.max_body_bytes),
            remote_addr=self._remote_addr,
            peer_certificates=self._peer_certificates,
            tls=self._settings.tls_context is not None,
            ctx=ctx,
            admit=admit,
        )

    def _next_part(self) -> bytes:
        """Return the next part of the body, or b"" at its end. Raise ClientGone, BadRequest or HTTPError."""
        if self._is_to_continue:
            self._is_to_continue = False
            self._send(_CONTINUE)
        self._conn.set_deadline(time.monotonic() + self._settings.body_timeout)
        try:
            return self._body.next_part()
        except TimeoutError as err:
            raise HTTPError(408, "Request Timeout") from err
        except OSError as err:
            raise ClientGone(str(err)) from err
        finally:
            self._conn.set_deadline(time.monotonic() + self._settings.write_timeout)

    def _may_go_on(self) -> bool:
        """Report whether the connection is ready for the next request.

        It is not if the rest of this request's body is too long or too slow to be skipped.
        """
        if not self._frame.keeps_alive:
            return False
        with contextlib.suppress(BadRequest, TimeoutError):
            self._skip_body()
        if not self._body.ended:
            linger(self._conn, _LINGER, self._turn.let_others)
        return self._body.ended

    def _skip_body(self) -> None:
        # Decoding chunks takes time, and the client may not be authenticated.
        if self._is_to_continue or self._body.chunked:
            return
        until = time.monotonic() + _LINGER
        self._conn.set_deadline(until)
        skipped = 0
        # The deadline ends only a call that waits, and the body may arrive byte by byte.
        while skipped < MAX_SKIPPED_BYTES and time.monotonic() < until and (part := self._body.next_part()):
            skipped += len(part)
            self._turn.pass_on()

    def _refuse(self, status: int) -> None:
        """Respond to input that is not HTTP; the code for HTTP responses cannot do that."""
        text = f"{status} {status_text(status)}"
        head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        self._dismiss(f"{head}{text}".encode())

    def _dismiss(self, answer: bytes) -> None:
        """Send the last response of this connection, and give the client time to read it. Raise OSError."""
        self._conn.set_deadline(time.monotonic() + _LINGER)
        self._conn.sendall(answer)
        linger(self._conn, _LINGER, self._turn.let_others)

    # A ResponseWriter sends through the next methods.

    def start(self, status: int, headers: Headers, first: bytes) -> None:
        if status >= 300:
            self._conn.set_deadline(time.monotonic() + REFUSAL_WRITE_TIMEOUT)
        self._send(self._frame.start(status, headers) + self._frame.data(first))

    def data(self, data: memoryview) -> None:
        self._send(self._frame.data(data))

    def end(self) -> None:
        self._send(self._frame.end())

    def let_client_pause(self) -> None:
        self._conn.settimeout(None)

    def hijack(self) -> tuple[Conn, bytes]:
        self._settings.hang_ups.remove(self.sock.fileno())
        self._conn.set_deadline(None)
        self._conn.settimeout(None)
        early = bytes(self._source.received)
        self._source.received.clear()
        return self._conn, early

    def _send(self, data: bytes | memoryview) -> None:
        if not data:
            return
        try:
            self._conn.sendall(data)
        except OSError as err:
            raise ClientGone(f"client disconnected: {err}") from err


def _cost(certificate: bytes) -> int:
    return CERTIFICATE_COST_BYTES + COST_OF_LARGE_BYTES * max(len(certificate) - LARGE_CERTIFICATE_BYTES, 0)


def run_handler(handler: Handler, w: ResponseWriter, make_request: Callable[[], Request]) -> None:
    """Run the handler, and respond to the request even if the handler fails.

    Raise ClientGone if the response cannot be sent.
    """
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
    except Exception as err:  # Like the recover in Go: a failure of one request must not affect others.
        klog.error_s(err, "Observed a panic while serving a request", stacktrace=klog.stacktrace(err))
        # The details belong in the log and not in the response.
        _replace(w, "Internal Server Error", 500)


def _replace(w: ResponseWriter, text: str, code: int) -> None:
    if w.started:
        raise ClientGone(f"response was truncated: {text}")
    w.reset()
    error(w, text, code)
