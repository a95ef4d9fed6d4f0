"""A handler that passes a request for an upgrade on, and then the upgraded connection byte by byte.

Go: k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11

from pkg import klog
from pkg.apimachinery.util import httpstream
from pkg.apimachinery.util.proxy.dial import DIAL_TIMEOUT, dial_url
from pkg.apimachinery.util.proxy.relay import Relay
from pkg.golang import http

SWITCHING_PROTOCOLS = 101
_READ_SIZE = 1 << 16
# What of a refusal's body is passed on.
_MAX_BODY = 1 << 20
# Between two servers and of no meaning behind them; nor are the client's credentials any business of the runtime.
# DIVERGES: Go passes those on.
_NOT_FORWARDED = {"host", "content-length", "transfer-encoding", "keep-alive", "trailer", "expect", "authorization"}
_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "trailer"}

Fields = list[tuple[str, str]]


class BackendError(Exception):
    """The backend could not be reached, or does not speak HTTP."""


@dataclass(slots=True)
class Backend:
    """A connection to a backend that has answered: upgraded if `status` is 101, else with the answer's `body`."""

    conn: http.Conn
    status: int
    reason: str = ""
    headers: http.Headers = field(default_factory=http.Headers)
    body: bytes = b""
    """What came after the head: of an upgraded connection, the first bytes."""

    def response_head(self) -> bytes:
        """What the client is to be told of the upgrade."""
        lines = [f"HTTP/1.1 {self.status} {self.reason}", *(f"{name}: {value}" for name, value in self.headers.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class UpgradeAwareHandler:
    """Passes upgraded connections on to the URL `location`; other requests are refused."""

    def __init__(self, location: str) -> None:
        self._location = location

    def serve_http(self, w: http.ResponseWriter, req: http.Request) -> None:
        """Returns when the connection has ended."""
        if not httpstream.is_upgrade_request(req):
            # DIVERGES: Go calls what the client did wrong its own fault (500).
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
            relay.client.write(backend.response_head() + backend.body)
            relay.backend.write(first)
            relay.run()
        finally:
            backend.conn.close()


def forwarded_headers(req: http.Request) -> Fields:
    """What the backend is told of what the client said."""
    fields = [(name, value) for name, value in req.headers.items() if name.lower() not in _NOT_FORWARDED]
    if req.remote_addr is not None:
        came_through = [value for name, value in fields if name.lower() == "x-forwarded-for"]
        fields = [each for each in fields if each[0].lower() != "x-forwarded-for"]
        fields.append(("X-Forwarded-For", ", ".join([*came_through, req.remote_addr[0]])))
    return fields


def pass_refusal_on(w: http.ResponseWriter, backend: Backend) -> None:
    """Give the client the answer of a backend that did not upgrade the connection."""
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
    """Ask the server at `location` to upgrade a connection. Its `conn` is the caller's to close.

    Raises BackendError.
    """
    url = urlsplit(location)
    try:
        conn = dial_url(url)
    except (OSError, ValueError) as err:
        raise BackendError(f"error dialing backend: {err}") from err
    try:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        return _ask(conn, method, target, [("Host", url.netloc), *headers])
    except (OSError, h11.ProtocolError) as err:
        conn.close()
        raise BackendError(f"error sending request: {err}") from err
    except BaseException:
        conn.close()
        raise


def _ask(conn: http.Conn, method: str, target: str, headers: Fields) -> Backend:
    """Send the request and read the answer to it. Raises OSError or h11.ProtocolError."""
    conn.set_deadline(time.monotonic() + DIAL_TIMEOUT)
    http11 = h11.Connection(h11.CLIENT)
    if method not in ("GET", "HEAD"):
        headers = [*headers, ("Content-Length", "0")]
    conn.sendall(http11.send(h11.Request(method=method, target=target, headers=headers)) or b"")
    conn.sendall(http11.send(h11.EndOfMessage()) or b"")
    backend = Backend(conn, 0)
    body = bytearray()
    while True:
        match event := http11.next_event():
            case h11.NEED_DATA:
                http11.receive_data(conn.recv(_READ_SIZE))
                continue
            case h11.InformationalResponse() | h11.Response():
                backend.status = event.status_code
                backend.reason = event.reason.decode("latin-1")
                items = event.headers.raw_items()
                backend.headers = http.Headers((name.decode(), value.decode("latin-1")) for name, value in items)
            case h11.Data():
                body += event.data
        if backend.status == SWITCHING_PROTOCOLS:
            body += http11.trailing_data[0]
            break
        if isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or len(body) > _MAX_BODY:
            break
    backend.body = bytes(body[:_MAX_BODY]) if backend.status != SWITCHING_PROTOCOLS else bytes(body)
    conn.set_deadline(None)
    return backend
