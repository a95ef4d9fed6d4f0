"""GET of the manifest URL, as Go's http.Client does it.

`requests` talks to the server. It would read credentials from `.netrc`, send cookies back, count its time limit from
the last byte that came, take a body that breaks off for a shorter one, keep the whole body of a redirect, and give each
address of a name all the time. So this module follows redirects itself, each with a session of its own, names the
proxy, connects, shuts the connection down when the time for the whole exchange is over, and decompresses.

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
# What is not for another host than the one it was configured for.
_SENSITIVE = ("authorization", "www-authenticate", "cookie", "cookie2", "proxy-authorization", "proxy-authenticate")
_CHUNK = 64 << 10


@dataclass(frozen=True, slots=True)
class Answer:
    """What a URL answers in the end."""

    status: int
    reason: str
    body: bytes


def get(ctx: golang.Context, url: str, headers: Mapping[str, str], timeout: float, limit: int) -> Answer:
    """GET the URL and what it redirects to, within `timeout` seconds; no body is longer than `limit` bytes.

    Raises OSError or ValueError that says what failed, ctx.err() once ctx is done, and golang.ThreadError.
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
        # A body without a length ends where its connection does.
        _raise_if_over(ctx, exchange, timeout)
        return answer
    finally:
        cancel()
        ending.join()


def _raise_if_over(ctx: golang.Context, exchange: golang.Context, timeout: float) -> None:
    """Whatever became of the exchange, its time was over before it ended."""
    ctx.raise_if_done()
    if exchange.err() is not None:
        raise TimeoutError(f"timed out: not read within {timeout:g} s")


def _follow(ctx: golang.Context, adapter: _Adapter, url: str, headers: Mapping[str, str], limit: int) -> Answer:
    first = target = _parse(url)
    for _ in range(MAX_REDIRECTS):
        answer, location = _get_once(ctx, adapter, target, _with_credentials(headers, target), limit)
        if not location:
            return answer
        # Nobody reads the body of a redirect. A server that serves one connection after the other may be sending it
        # still, and would not come to the next request.
        adapter.hang_up()
        net.split(location)  # Raises ValueError, before join looks at it.
        target = _parse(net.join(target.geturl(), location))
        if not _is_of(first, target):
            # For all later redirects too, because the other host chooses their targets, even one on the first host.
            headers = {name: value for name, value in headers.items() if name.lower() not in _SENSITIVE}
    raise ValueError(f"stopped after {MAX_REDIRECTS} redirects")


def _parse(url: str) -> urllib.parse.SplitResult:
    parsed = net.split(url)
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise ValueError(f'"{net.redacted(url)}" is not a URL of http or https')
    parsed.port  # noqa: B018  # raises ValueError
    return parsed


def _is_of(first: urllib.parse.SplitResult, target: urllib.parse.SplitResult) -> bool:
    """Whether the target is the first host, or below it."""
    mine, theirs = first.hostname or "", target.hostname or ""
    return theirs == mine or theirs.endswith(f".{mine}")


def _with_credentials(headers: Mapping[str, str], target: urllib.parse.SplitResult) -> Mapping[str, str]:
    """The headers, with the user and password of the target's URL if they have no other."""
    if not target.username or any(name.lower() == "authorization" for name in headers):
        return headers
    return {**headers, "Authorization": connection_.basic_auth(target)}


def _get_once(
    ctx: golang.Context, adapter: _Adapter, url: urllib.parse.SplitResult, headers: Mapping[str, str], limit: int
) -> tuple[Answer, str]:
    """The answer, and where it redirects to, "" if it does not."""
    # The credentials of the URL are among the headers.
    bare = url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()
    with _Session() as session:
        session.trust_env = False  # no .netrc
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
    """Raises ValueError for a header that cannot be sent. What requests says of it tells its value, maybe a token."""
    try:
        yield
    except requests.exceptions.InvalidHeader:
        raise ValueError("net/http: invalid header field name or value") from None


def _authorities() -> str | bool:
    """Those of the system, as Go's; without any, those that requests brings."""
    paths = ssl.get_default_verify_paths()
    return paths.cafile or paths.capath or True


def _read(response: requests.Response, limit: int) -> bytes:
    """Raises ValueError for what is longer than the limit, as sent or decompressed, and OSError for what breaks off."""
    data = bytearray()
    try:
        # `stream` takes a chunk of size -1 for one without an end. `read` has the sizes read by connection_.Response.
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
    """Takes no answer for a redirect.

    Even if a session is not to follow a redirect, it makes the request that would be next. For that it reads the whole
    body of the redirect, which may have no end, and decompresses it: a kilobyte may become a gigabyte. Go's client
    reads two KiB.
    """

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


class _Adapter(adapters.HTTPAdapter):
    """Ends whatever its connections wait for, a look-up, a handshake, a head or a body, once the context is done.

    Tells the end of a connection from a break.
    """

    def __init__(self, ctx: golang.Context) -> None:
        super().__init__()
        self._ctx = ctx
        self._lock = threading.Lock()  # guards what follows
        # Other descriptors of the sockets: TLS takes a socket's own away.
        self._sockets: list[socket.socket] = []
        self._is_over = False

    def get_connection_with_tls_context(self, *args: Any, **kwargs: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*args, **kwargs)
        adapter = self

        class Connection(pool.ConnectionCls):  # type: ignore[misc]
            # A head that breaks off is no empty answer, upon which all pods would be ended.
            response_class = connection_.Response

            def _new_conn(self) -> socket.socket:
                try:
                    # With the dot that may be at its end: such a name is looked up in no domain but its own.
                    sock = adapter._dial(self._dns_host, self.port, self.socket_options or ())
                except (OSError, UnicodeError) as err:
                    text = f"Failed to establish a new connection: {err}"
                    raise urllib3.exceptions.NewConnectionError(self, text) from err
                adapter._add(sock)
                return sock

            def connect(self) -> None:
                super().connect()
                if isinstance(self.sock, ssl.SSLSocket):
                    # Anybody on the way can end a connection. Only the server can say in TLS that this is the end.
                    self.sock.suppress_ragged_eofs = False  # type: ignore[attr-defined]

        pool.ConnectionCls = Connection
        return pool

    def _dial(self, host: str, port: int, options: Iterable[tuple[int, int, int]]) -> socket.socket:
        """A connection to one of the host's addresses. Raises OSError, and UnicodeError for what can be no name."""

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
        """End all connections."""
        with self._lock:
            for each in self._sockets:
                net.hang_up(each)
                each.close()
            self._sockets.clear()

    def hang_up_when_done(self) -> None:
        """Wait until the context is done, and end all connections, also those to come; on a thread of its own."""
        self._ctx.done().recv()
        with self._lock:
            self._is_over = True
        self.hang_up()
