"""GET of the manifest URL, as Go's http.Client does it.

The standard clients count their time-outs from the last byte that came; here the whole exchange has one, redirects
included. Nothing but the configuration and the proxies of the environment says what is sent: there is no `.netrc`,
and no cookie.

Go: net/http (client.go, transport.go)
"""

from __future__ import annotations

import http.client
import os
import ssl
import urllib.parse
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from pkg import golang
from pkg.client_go import transport
from pkg.client_go.transport import connection as connection_
from pkg.golang import httpproxy

MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
# What is not for another host than the one it was configured for.
_SENSITIVE = ("authorization", "www-authenticate", "cookie", "cookie2")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a URL answers in the end."""

    status: int
    reason: str
    body: bytes


def get(ctx: golang.Context, url: str, headers: Mapping[str, str], timeout: float, limit: int) -> Answer:
    """GET the URL and what it redirects to, within `timeout` seconds; no body is longer than `limit` bytes.

    Raises OSError or ValueError that says what failed, and ctx.err() once ctx is done.
    """
    deadline = monotonic() + timeout
    first = target = _parse(url)
    for _ in range(MAX_REDIRECTS):
        answer, location = _get_once(ctx, target, _headers_for(first, target, headers), deadline, limit)
        if not location:
            return answer
        target = _parse(urllib.parse.urljoin(target.geturl(), location))
    raise ValueError(f"stopped after {MAX_REDIRECTS} redirects")


def _parse(url: str) -> urllib.parse.SplitResult:
    parsed = urllib.parse.urlsplit(url)
    if parsed.scheme not in ("http", "https") or not parsed.hostname:
        raise ValueError(f'"{url}" is not a URL of http or https')
    parsed.port  # noqa: B018  # raises ValueError
    return parsed


def _headers_for(
    first: urllib.parse.SplitResult, target: urllib.parse.SplitResult, headers: Mapping[str, str]
) -> dict[str, str]:
    """What is sent to the target: all of the headers to the first host and those below it."""
    mine, theirs = first.hostname or "", target.hostname or ""
    if theirs == mine or theirs.endswith(f".{mine}"):
        sent = dict(headers)
    else:
        sent = {name: value for name, value in headers.items() if name.lower() not in _SENSITIVE}
    if target.username and not any(name.lower() == "authorization" for name in sent):
        sent["Authorization"] = connection_.basic_auth(target)
    return sent


def _get_once(
    ctx: golang.Context, url: urllib.parse.SplitResult, headers: Mapping[str, str], deadline: float, limit: int
) -> tuple[Answer, str]:
    """The answer, and where it redirects to, "" if it does not."""
    proxy = _proxy(url)
    context = ssl.create_default_context() if url.scheme == "https" else None
    connection = transport.Connection(url, context, proxy=proxy)
    connection.set_deadline(deadline)
    forget = golang.after_func(ctx, connection.abort)
    try:
        connection.connect()
        _send(connection, url, headers, proxy)
        response = connection.getresponse()
        location = response.headers.get("Location") or "" if response.status in _REDIRECTS else ""
        body = b"" if location else transport.read_body(response, limit)
        return Answer(response.status, response.reason, body), location
    except (EOFError, AttributeError, zlib.error, http.client.HTTPException) as err:
        raise _ended(ctx) or OSError(f"{type(err).__name__}: {err}") from err
    except (OSError, ValueError) as err:
        raise _ended(ctx) or err from None
    finally:
        forget()
        connection.close()


def _ended(ctx: golang.Context) -> Exception | None:
    """The reason for whatever became of the connection, if that is the end of ctx."""
    return ctx.err()


def _proxy(url: urllib.parse.SplitResult) -> urllib.parse.SplitResult | None:
    text = httpproxy.from_environment(os.environ, url)
    if not text:
        return None
    parsed = urllib.parse.urlsplit(text if "://" in text else f"http://{text}")
    if parsed.scheme != "http" or not parsed.hostname:
        # DIVERGES: https and socks5 proxies are not supported.
        raise ValueError(f'proxy "{parsed.scheme}://{parsed.hostname}": only http:// proxies are supported')
    return parsed


def _send(
    connection: transport.Connection,
    url: urllib.parse.SplitResult,
    headers: Mapping[str, str],
    proxy: urllib.parse.SplitResult | None,
) -> None:
    host = url.netloc.rpartition("@")[2]
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    sent = {"Host": host, "User-Agent": "kubelet", "Accept-Encoding": "gzip", "Connection": "close"}
    if proxy is not None and url.scheme == "http":
        target = f"http://{host}{target}"
        if proxy.username:
            sent["Proxy-Authorization"] = connection_.basic_auth(proxy)
    given = {name.lower() for name in headers}
    connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
    for name, value in [*((n, v) for n, v in sent.items() if n.lower() not in given), *headers.items()]:
        connection.putheader(name, value)
    connection.endheaders()
