"""The requests on one connection.

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

# Seconds in which a client may still read why its connection is ended.
_LINGER = 0.5
# Seconds in which a client has to take an answer that is a redirect or a refusal.
REFUSAL_WRITE_TIMEOUT = 10.0
# What one of a client's certificates takes, most of it what OpenSSL knows of it. And what each byte takes that is more
# than certificates of clients have: OpenSSL makes a hundred bytes of a name that has two.
CERTIFICATE_COST_BYTES = 20 << 10
LARGE_CERTIFICATE_BYTES = 2 << 10
COST_OF_LARGE_BYTES = 64
# Of a body that the handler did not read.
MAX_SKIPPED_BYTES = 256 << 10
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


W = TypeVar("W", bound=WaitingConn)


@dataclass(frozen=True, slots=True)
class Settings:
    """What all connections of a server share. Times are in seconds."""

    handler: Handler
    tls_context: Callable[[], SSL.Context] | None
    ctx: golang.Context
    hang_ups: HangUps
    room: Room[Connection]
    parsing: threading.Lock
    """Held while a head is taken apart, which for a moment takes several times its bytes."""
    turns: Turns
    """A connection holds one while the server works for its client and does not know the client yet."""
    authenticates: bool
    idle_timeout: float
    read_header_timeout: float
    body_timeout: float
    write_timeout: float
    stall_timeout: float
    max_header_bytes: int
    max_body_bytes: int


class Connection:
    """Serves one client after the other's request in the thread that calls `serve`."""

    def __init__(self, settings: Settings, sock: socket.socket, remote_addr: tuple[str, int] | None) -> None:
        self.sock = sock
        self._settings = settings
        self._remote_addr = remote_addr
        self._peer_certificates: list[bytes] = []
        self._turn = Turn(settings.turns)
        self._conn: Conn = self._taking_turns(PlainConn(sock))
        # By itself, and not a part of this object: a cycle would keep what was received until garbage is collected.
        self._source = Source(self._conn)
        # Of the request that is being served.
        self._body: MessageBody
        self._frame: ResponseFrame
        self._is_to_continue = False

    def serve(self) -> None:
        """Until the client has gone or did what ends a connection; closes the socket."""
        with self._turn:
            self._serve()

    def _taking_turns(self, conn: W) -> W:
        conn.meanwhile = self._turn.let_others
        return conn

    def _serve(self) -> None:
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
            # Other connections get the room of this one next, so its memory is freed first.
            self._source.received.clear()

    def _handshake(self, tls_context: Callable[[], SSL.Context]) -> None:
        # Loading OpenSSL takes a while: only servers with TLS do it.
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
        """Account for certificates as soon as they come: a client may be slow to prove that they are its own."""
        if not self._peer_certificates:
            self._peer_certificates = conn.peer_certificates()
            if self._peer_certificates:
                self._hold()

    def _hold(self) -> None:
        """Account for what is kept for a client that is not known yet. Raises ClientGone if that was too much."""
        certificates = sum(map(_cost, self._peer_certificates))
        with self._turn.let_others():
            self._settings.room.hold(self, len(self._source.received) + certificates)

    def _serve_request(self, timeout: float) -> bool:
        """Returns whether another request may follow. Raises OSError."""
        try:
            head = self._read_head(timeout)
        except MalformedError as err:
            self._refuse(err.status)
            return False
        if head is None:
            return False
        if head.method == "CONNECT":
            # DIVERGES (safer): CONNECT is answered with 405.
            # Go: net/http/server.go, (*ServeMux).findHandler: the handlers answer CONNECT as any other method.
            # Why: a client takes a success as the opening of a tunnel, and this server has no tunnels.
            # Test: server_test.py:test_bad_requests
            self._refuse(405)
            return False
        with self._turn.let_others():
            is_http = self._answer(head)
        return is_http and self._may_go_on()

    def _answer(self, head: Head) -> bool:
        """Returns whether the connection is still one of HTTP. Raises OSError."""
        self._conn.set_deadline(time.monotonic() + self._settings.write_timeout)
        self._conn.settimeout(self._settings.stall_timeout)
        hijacked = self._respond(head)
        self._settings.room.rest(self)
        return not hijacked

    def _read_head(self, timeout: float) -> Head | None:
        """None when the client has gone instead. Raises TimeoutError, OSError or MalformedError."""
        self._conn.set_deadline(
            time.monotonic() + (self._settings.read_header_timeout if self._source.received else timeout)
        )
        searched = 0
        while (end := HEAD_END.search(self._source.received, max(searched - 2, 0))) is None:
            searched = len(self._source.received)
            if searched > self._settings.max_header_bytes:
                raise MalformedError(431)
            # No request begins so, but TLS does, which would wait for an answer now.
            if searched and self._source.received[0] <= ord(" "):
                raise MalformedError(400)
            if not self._source.more():
                if searched:
                    raise MalformedError(400)
                return None
            if not searched:
                # For the whole head, however slowly it drips.
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
        """Returns whether the handler has taken the connection over. Raises OSError."""
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
        """The next part of the body, b"" at its end. Raises ClientGone, BadRequest or HTTPError."""
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
        """Ready for the next request, unless this one's body is too long or too slow to be read to its end."""
        if not self._frame.keeps_alive:
            return False
        with contextlib.suppress(BadRequest, TimeoutError):
            self._skip_body()
        if not self._body.ended:
            linger(self._conn, _LINGER, self._turn.let_others)
        return self._body.ended

    def _skip_body(self) -> None:
        # What is in chunks takes time to take apart, and nobody may know yet who has sent it.
        if self._is_to_continue or self._body.chunked:
            return
        until = time.monotonic() + _LINGER
        self._conn.set_deadline(until)
        skipped = 0
        # The deadline ends only a call that waits, and the body may come byte by byte.
        while skipped < MAX_SKIPPED_BYTES and time.monotonic() < until and (part := self._body.next_part()):
            skipped += len(part)
            self._turn.pass_on()

    def _refuse(self, status: int) -> None:
        """Answer what is no HTTP, past the machinery for what is."""
        text = f"{status} {status_text(status)}"
        head = f"HTTP/1.1 {text}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
        self._dismiss(f"{head}{text}".encode())

    def _dismiss(self, answer: bytes) -> None:
        """Send the last answer of this connection, and give the client a moment to read the answer. Raises OSError."""
        self._conn.set_deadline(time.monotonic() + _LINGER)
        self._conn.sendall(answer)
        linger(self._conn, _LINGER, self._turn.let_others)

    # How a ResponseWriter sends.

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
            raise ClientGone(f"client has gone: {err}") from err


def _cost(certificate: bytes) -> int:
    return CERTIFICATE_COST_BYTES + COST_OF_LARGE_BYTES * max(len(certificate) - LARGE_CERTIFICATE_BYTES, 0)


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
