"""Forward a request for an upgrade, and then relay the upgraded connection.

Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from pkg import klog
from pkg.apimachinery.util import httpstream
from pkg.apimachinery.util.httpstream import spdy
from pkg.apimachinery.util.proxy.dial import DIAL_TIMEOUT, dial_url
from pkg.apimachinery.util.proxy.relay import PIECES_IN_TURN, TURNS, Relay
from pkg.golang import http, net
from pkg.golang.http.head import HEAD_END, MalformedError, ResponseHead, parse_response_head
from pkg.golang.http.transfer import MessageBody, Source
from pkg.golang.turn import Turn

SWITCHING_PROTOCOLS = 101
# `MAX_HEAD_BYTES` is the maximum size, in bytes, of a response's head, including its 1xx responses.
MAX_HEAD_BYTES = 64 << 10
# At most this many bytes of an error response's body are forwarded.
_MAX_BODY = 1 << 20
# These characters could end a header line early.
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# These headers concern only one connection, so they are not forwarded.
# DIVERGES (safer): the kubelet never forwards a client's Authorization header to the runtime.
# Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: the Go kubelet forwards all
# headers, and has removed this one only if the token authenticated the client.
# Why: the runtime has no use for a token that a client sends in addition to its certificate.
# Test: upgradeaware_test.py:test_an_upgraded_connection_is_the_clients
_NOT_FORWARDED = {"host", "content-length", "transfer-encoding", "keep-alive", "trailer", "expect", "authorization"}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "trailer"}

Fields = list[tuple[str, str]]


class BackendError(Exception):
    """Signal that the backend could not be reached, or does not speak HTTP."""


@dataclass(slots=True)
class Backend:
    """Hold a connection to a backend that has responded: it is upgraded if `status` is 101."""

    conn: http.Conn
    status: int
    reason: str = ""
    headers: http.Headers = field(default_factory=http.Headers)
    body: bytes = b""
    """`body` is the data after the head: the response's body, or the first bytes of an upgraded connection."""

    def speaks_spdy(self) -> bool:
        """Report whether the connection was upgraded to SPDY."""
        return spdy.HEADER_SPDY_31.lower() in self.headers.get(httpstream.HEADER_UPGRADE).lower()

    def response_head(self) -> bytes:
        """Return the head of the response to the client after an upgrade."""
        lines = [f"HTTP/1.1 {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class UpgradeAwareHandler:
    """Forward upgraded connections to the URL `location`, and refuse other requests."""

    def __init__(self, location: str) -> None:
        self._location = location

    def serve_http(self, w: http.ResponseWriter, req: http.Request) -> None:
        """Serve the request, and return when the connection has ended."""
        if not httpstream.is_upgrade_request(req):
            # DIVERGES (fault of Go): the kubelet responds with 400 to a streaming request without an upgrade.
            # Go: pkg/kubelet/server/server.go, (*responder).Error: the response is 500 for every error, although the
            # handler passes a BadRequest.
            # Why: the client made the mistake, and a count of server errors would blame the kubelet.
            # Test: upgradeaware_test.py:test_a_request_without_an_upgrade
            http.error(w, "Upgrade request required", 400)
            return
        try:
            backend = dial_for_upgrade(self._location, req.method, forwarded_headers(req))
        except BackendError as err:
            klog.error_s(err, "Error while proxying request")
            http.error(w, str(err), 500)
            return
        try:
            if backend.status != SWITCHING_PROTOCOLS:
                pass_refusal_on(w, backend)
                return
            client, first = w.hijack()
            relay = Relay(client, backend.conn)
            if backend.speaks_spdy():
                relay.client.on_data = _PingsLast(relay).from_client
            relay.client.write(backend.response_head() + backend.body)
            relay.run(first)
        finally:
            backend.conn.close()


class _PingsLast:
    """Forward a SPDY client's frames, but delay trailing pings until the backend has sent all its output.

    A ping waits only until the client sends something else, so it keeps its position among the client's frames and
    never splits another frame.

    DIVERGES (fault of Go): the kubelet forwards a trailing ping of the client after all output of the runtime.
    Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go, (*UpgradeAwareHandler).tryUpgrade: the Go kubelet forwards a
    ping at once.
    Why: when a command has ended and its output is still in transit, a ping to the closed connection makes the
    runtime's kernel discard the rest, and kubectl exits with code 0.
    Test: upgradeaware_test.py:test_pings_wait_until_the_runtime_has_no_more_to_say,
    relay_test.py:test_what_can_wait_costs_nothing_of_what_a_backend_says_that_closes
    """

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._filter = spdy.PingFilter()
        self._turn = Turn(TURNS)

    def from_client(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            # Other connections get their turn after a number of frames, because a client may send thousands of small
            # ones at once.
            with self._turn:
                before, pings, rest = self._filter.split(rest, PIECES_IN_TURN)
            if before:
                self._relay.write_held()
                self._relay.backend.write(before)
            if pings:
                self._relay.write_once_drained(pings)


def forwarded_headers(req: http.Request) -> Fields:
    """Return the client's headers that are forwarded to the backend."""
    fields = [(name, value) for name, value in req.headers.items() if name.lower() not in _NOT_FORWARDED]
    if req.remote_addr is not None:
        came_through = [value for name, value in fields if name.lower() == "x-forwarded-for"]
        fields = [each for each in fields if each[0].lower() != "x-forwarded-for"]
        fields.append(("X-Forwarded-For", ", ".join([*came_through, req.remote_addr[0]])))
    return fields


def pass_refusal_on(w: http.ResponseWriter, backend: Backend) -> None:
    """Forward the response of a backend that did not upgrade the connection."""
    if backend.status < 400:
        err = f"invalid upgrade response: status code {backend.status}"
        klog.error_s(None, "Proxy upgrade error", err=err)
        http.error(w, err, 500)
        return
    for name, value in backend.headers.items():
        if name.lower() not in _HOP_BY_HOP:
            w.headers.add(name, value)
    w.write_header(backend.status)
    w.write(backend.body)


def dial_for_upgrade(location: str, method: str, headers: Iterable[tuple[str, str]]) -> Backend:
    """Ask the server at `location` to upgrade a connection; raise BackendError on failure.

    The caller must close the connection `conn` of the result.
    """
    try:
        url = net.split(location)
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        request = _request(method, target, [("Host", url.netloc), *headers])
        conn = dial_url(url)
    except (OSError, ValueError) as err:
        raise BackendError(f"error dialing backend: {err}") from err
    try:
        conn.set_deadline(time.monotonic() + DIAL_TIMEOUT)
        conn.sendall(request)
        backend = _read_answer(conn)
        conn.set_deadline(None)
        return backend
    except (OSError, MalformedError, http.BadRequest) as err:
        conn.close()
        raise BackendError(f"error sending request: {err}") from err
    except BaseException:
        conn.close()
        raise


def _request(method: str, target: str, headers: Fields) -> bytes:
    """Return the request's head; raise ValueError if a line contains forbidden characters.

    The client's headers were validated before.
    """
    if method not in ("GET", "HEAD"):
        headers = [*headers, ("Content-Length", "0")]
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    if any(_CONTROL.search(line) for line in lines) or " " in target:
        raise ValueError(f"target or host cannot be sent: {target!r}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _read_answer(conn: http.Conn) -> Backend:
    """Read the response; raise OSError, MalformedError or BadRequest on failure."""
    source = Source(conn)
    left = MAX_HEAD_BYTES
    while True:
        data = _read_head(source, left)
        head = parse_response_head(data)
        if head.status >= 200 or head.status == SWITCHING_PROTOCOLS:
            break
        left -= len(data)
    body = bytes(source.received) if head.status == SWITCHING_PROTOCOLS else _read_body(head, source)
    return Backend(conn, head.status, head.reason, head.headers, body)


def _read_head(source: Source, limit: int) -> bytes:
    """Read one head; raise OSError, or BadRequest if it is too long or incomplete."""
    searched = 0
    while (end := HEAD_END.search(source.received, max(searched - 2, 0), limit)) is None:
        searched = len(source.received)
        if searched >= limit:
            raise http.BadRequest("head of the response is too long")
        if not source.more():
            raise http.BadRequest("unexpected end of the response")
    data = bytes(source.received[: end.end()])
    del source.received[: end.end()]
    return data


def _read_body(head: ResponseHead, source: Source) -> bytes:
    """Return the body up to the forwarded size; raise OSError or BadRequest on failure."""
    if head.until_end:
        while len(source.received) < _MAX_BODY and source.more():
            pass
        return bytes(source.received[:_MAX_BODY])
    body = MessageBody(head.content_length, source)
    passed_on = bytearray()
    while len(passed_on) < _MAX_BODY and (part := body.next_part()):
        passed_on += part
    return bytes(passed_on[:_MAX_BODY])
