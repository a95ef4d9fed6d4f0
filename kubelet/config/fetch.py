"""Request the manifest URL as Go's http.Client does.

The module uses `requests` to talk to the server. By itself, `requests` would:
- read credentials from `.netrc`, and send cookies back
- restart its time limit with each byte that arrives
- accept a truncated body as a complete one
- read the whole body of a redirect
- give the full time limit to each address of a host

So this module follows redirects itself, each with a session of its own. It also chooses the proxy, connects, shuts down
the connection when the time for the whole exchange is over, and decompresses the body.

Go: net/http (client.go, transport.go)
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import urllib.parse
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import requests
import urllib3
from requests import adapters

from pkg import golang
from pkg.client_go.transport import body as body_
from pkg.client_go.transport import connection as connection_
from pkg.golang import httpproxy, net

MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
# `_SENSITIVE` holds the headers that only the host of the configured URL may receive.
_SENSITIVE = ("authorization", "www-authenticate", "cookie", "cookie2", "proxy-authorization", "proxy-authenticate")
_CHUNK = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """Hold the final response of a URL, after all redirects."""

    status: int
    reason: str
    body: bytes


def get(ctx: golang.Context, url: str, headers: Mapping[str, str], timeout: float, limit: int) -> Answer:
    """Request the URL and follow its redirects, within `timeout` seconds. No body may exceed `limit` bytes.

    Raise OSError or ValueError with the step that failed, ctx.err() once ctx is done, and golang.ThreadError.
    """
    exchange, cancel = golang.with_timeout(ctx, timeout)
    adapter = _Adapter(exchange)
    ending = golang.go(adapter.hang_up_when_done, name="config-url-deadline")
    try:
        answer = _follow(exchange, adapter, url, headers, limit)
    except (OSError, ValueError):
        _raise_if_over(ctx, exchange, timeout)
        raise
    else:
        # A body without a length ends with its connection, so a body that the time limit has cut off looks complete.
        _raise_if_over(ctx, exchange, timeout)
        return answer
    finally:
        cancel()
        ending.join()


def _raise_if_over(ctx: golang.Context, exchange: golang.Context, timeout: float) -> None:
    """Raise ctx.err() or TimeoutError if the time was over before the exchange ended, whatever its result was."""
    ctx.raise_if_done()
    if exchange.err() is not None:
        raise TimeoutError(f"timed out: no complete response within {timeout:g} s")


def _follow(ctx: golang.Context, adapter: _Adapter, url: str, headers: Mapping[str, str], limit: int) -> Answer:
    first = target = _parse(url)
    for _ in range(MAX_REDIRECTS):
        answer, location = _get_once(ctx, adapter, target, _with_credentials(headers, target), limit)
        if not location:
            return answer
        # The client does not read the body of a redirect. A server that serves one connection after the other may still
        # be sending it, and would not accept the next request.
        adapter.hang_up()
        net.split(location)  # This call raises ValueError for an invalid location before `join` uses it.
        target = _parse(net.join(target.geturl(), location))
        if not _is_of(first, target):
            # The headers stay removed for all later redirects, even for one that leads back to the first host, because
            # the other host chooses their targets.
            headers = {name: value for name, value in headers.items() if name.lower() not in _SENSITIVE}
    raise ValueError(f"stopped after {MAX_REDIRECTS} redirects")


def _parse(url: str) -> urllib.parse.SplitResult:
    parsed = net.split(url)
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise ValueError(f'"{net.redacted(url)}" is not an http or https URL')
    parsed.port  # noqa: B018  # raises ValueError
    return parsed


def _is_of(first: urllib.parse.SplitResult, target: urllib.parse.SplitResult) -> bool:
    """Report whether the target's host is the first host or a subdomain of it."""
    mine, theirs = first.hostname or "", target.hostname or ""
    return theirs == mine or theirs.endswith(f".{mine}")


def _with_credentials(headers: Mapping[str, str], target: urllib.parse.SplitResult) -> Mapping[str, str]:
    """Add the user and password of the target's URL to the headers, unless they already hold credentials."""
    if not target.username or any(name.lower() == "authorization" for name in headers):
        return headers
    return {**headers, "Authorization": connection_.basic_auth(target)}


def _get_once(
    ctx: golang.Context, adapter: _Adapter, url: urllib.parse.SplitResult, headers: Mapping[str, str], limit: int
) -> tuple[Answer, str]:
    """Return the response and the URL to which it redirects, or "" if it does not redirect."""
    # The credentials of the URL are already among the headers.
    bare = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
    with _Session() as session:
        session.trust_env = False  # This setting keeps requests from reading .netrc.
        session.headers.clear()
        session.headers.update({"User-Agent": "kubelet", "Accept-Encoding": "gzip", "Connection": "close"})
        session.mount(f"{url.scheme}://", adapter)
        proxies = {url.scheme: proxy} if (proxy := httpproxy.from_environment(os.environ, url)) else {}
        with (
            _untold_headers(),
            session.get(
                bare,
                headers=dict(headers),
                proxies=proxies,
                verify=_authorities(),
                timeout=ctx.remaining(),
                stream=True,
                allow_redirects=False,
            ) as response,
        ):
            location = response.headers.get("Location", "") if response.status_code in _REDIRECTS else ""
            body = b"" if location else _read(response, limit)
            return Answer(response.status_code, response.reason, body), location


@contextlib.contextmanager
def _untold_headers() -> Iterator[None]:
    """Raise ValueError for a header that cannot be sent.

    The message of requests would quote the header's value, which may be a token.
    """
    try:
        yield
    except requests.exceptions.InvalidHeader:
        raise ValueError("net/http: invalid header field name or value") from None


def _authorities() -> str | bool:
    """Return the certificate authorities of the system, as Go does, or those of requests if the system has none."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


def _read(response: requests.Response, limit: int) -> bytes:
    """Return the body, decompressed if necessary.

    Raise ValueError if the body exceeds the limit before or after decompression, and OSError if it is truncated.
    """
    data = bytearray()
    try:
        # `stream` treats a chunk of size -1 as a chunk without an end. `read` leaves the parsing of sizes to
        # connection_.Response.
        while chunk := response.raw.read(_CHUNK, decode_content=False):
            data += chunk
            if len(data) > limit:
                raise ValueError(f"longer than {limit} bytes")
        if response.headers.get("Content-Encoding", "").lower() != "gzip":
            return bytes(data)
        return body_.decompress(bytes(data), limit)
    except (urllib3.exceptions.HTTPError, EOFError, zlib.error) as err:
        raise OSError(f"reading the body: {err}") from err


class _Session(requests.Session):
    """Treat no response as a redirect.

    Even when a session must not follow a redirect, it prepares the next request. For this it reads the whole body of
    the redirect, which may be endless, and decompresses it, so that a kilobyte may become a gigabyte. Go's client reads
    two KiB.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


class _Adapter(adapters.HTTPAdapter):
    """Abort a look-up, a handshake, or the reading of a head or a body once the context is done.

    The adapter also distinguishes a complete response from a truncated one.
    """

    def __init__(self, ctx: golang.Context) -> None:
        super().__init__()
        self._ctx = ctx
        self._lock = threading.Lock()  # This lock guards the fields below.
        # These are duplicates of the sockets because TLS detaches the descriptor of the original socket.
        self._sockets: list[socket.socket] = []
        self._is_over = False

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        adapter = self

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            # This class rejects a truncated head. An empty response in its place would stop all pods.
            response_class = connection_.Response

            def _new_conn(self) -> socket.socket:
                try:
                    # This name keeps a trailing dot, with which the resolver does not append search domains.
                    sock = adapter._dial(self._dns_host, self.port, self.socket_options or ())
                except (OSError, UnicodeError) as err:
                    text = f"Failed to establish a new connection: {err}"
                    raise urllib3.exceptions.NewConnectionError(self, text) from err
                adapter._add(sock)
                return sock

            def connect(self) -> None:
                super().connect()
                if isinstance(self.sock, ssl.SSLSocket):
                    # Anybody on the network path can close a connection. In TLS only the server can declare the end of
                    # the data.
                    self.sock.suppress_ragged_eofs = False  # type: ignore[attr-defined]

        pool.ConnectionCls = Connection
        return pool

    def _dial(self, host: str, port: int, options: Iterable[tuple[int, int, int]]) -> socket.socket:
        """Connect to one of the host's addresses. Raise OSError, or UnicodeError if the host is not a valid name."""

        def control(sock: socket.socket) -> None:
            for option in options:
                sock.setsockopt(*option)

        sock = net.dial_parallel(self._ctx, net.lookup_host(self._ctx, host, port), control)
        sock.settimeout(self._ctx.remaining())
        return sock

    def _add(self, sock: socket.socket) -> None:
        with self._lock:
            self._sockets.append(sock.dup())
            if self._is_over:
                net.hang_up(sock)

    def hang_up(self) -> None:
        """Shut down and close all connections."""
        with self._lock:
            for each in self._sockets:
                net.hang_up(each)
                each.close()
            self._sockets.clear()

    def hang_up_when_done(self) -> None:
        """Wait until the context is done, then shut down all current and future connections.

        The method runs on a separate thread.
        """
        self._ctx.done().recv()
        with self._lock:
            self._is_over = True
        self.hang_up()
