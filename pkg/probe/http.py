"""Probing by a GET request.

Go: pkg/probe/http/http.go, request.go
"""

from __future__ import annotations

import functools
import http.client
import io
import re
import socket
import ssl
import time
from urllib.parse import quote, urljoin, urlsplit

from pkg import klog
from pkg.api.core import v1
from pkg.component_base import version
from pkg.probe.dialer import dial, join_host_port
from pkg.probe.probe import BrokenAnswerError, Result, resolve_container_port

MAX_RESPONSE_BODY_LENGTH = 10 * 1024
MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)
_HEADER_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_NOT_IN_HEADERS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Those that Go's client leaves out, as a request without a body has none of them.
_NOT_SENT = ("host", "content-length", "transfer-encoding", "trailer")
# What of a path or query stays as it is; the rest, blanks and umlauts for example, is escaped.
_PLAIN = "/%!$&'()*+,;=:@~?[]"


def new_request_url(action: v1.HTTPGetAction, container: v1.Container, pod_ip: str) -> str:
    """The URL of the action. Raises ValueError for a port that is not there."""
    scheme = action.scheme.lower() or "http"
    port = resolve_container_port(action.port or 0, container)
    path = action.path
    if path and not path.startswith(("/", "?")):
        path = "/" + path
    return f"{scheme}://{join_host_port(action.host or pod_ip, port)}{path}"


def headers_of(action: v1.HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    """The action's headers with the kubelet's own; one of those is left out when the action has it empty."""
    headers = [(header.name, header.value) for header in action.http_headers]
    names = {name.lower() for name, _ in headers}
    if "user-agent" not in names:
        info = version.get()
        headers.append(("User-Agent", f"kube-{purpose}/{info.major}.{info.minor}"))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    own = ("user-agent", "accept", "host")
    return [(name, value) for name, value in headers if value or name.lower() not in own]


def probe_http(url: str, headers: list[tuple[str, str]], timeout: float) -> tuple[Result, str]:
    """GET the URL within timeout seconds, redirects on the same host included; certificates are not verified.

    A redirect to another host is a warning: the container answered, and its probe does not follow. Raises
    BrokenAnswerError when the answer breaks off in its body, which says nothing about the container's health.
    """
    deadline = time.monotonic() + timeout
    first_host = urlsplit(url).hostname
    for _ in range(MAX_REDIRECTS):
        try:
            response = _get(url, headers, deadline)
        except TimeoutError as err:
            return Result.FAILURE, f'Get "{url}": {err} (Client.Timeout exceeded while awaiting headers)'
        except (OSError, http.client.HTTPException, ValueError) as err:
            return Result.FAILURE, f'Get "{url}": {str(err) or type(err).__name__}'
        with response:
            location = response.getheader("Location", "") if response.status in _REDIRECTS else ""
            try:
                target = urljoin(url, location)
                stays = bool(location) and is_local_redirect(target, first_host)
            except ValueError as err:
                return Result.FAILURE, f'Get "{url}": failed to parse Location header "{location}": {err}'
            if not stays:
                return _verdict(response.status, _read(response))
        if urlsplit(location).netloc:
            headers = [(name, value) for name, value in headers if name.lower() != "host"]
        url = target
    return Result.FAILURE, f'Get "{url}": stopped after {MAX_REDIRECTS} redirects'


def is_local_redirect(target: str, first_host: str | None) -> bool:
    """Whether a redirect stays on the host that was asked first; others are not followed."""
    return urlsplit(target).hostname == first_host


def _get(url: str, headers: list[tuple[str, str]], deadline: float) -> http.client.HTTPResponse:
    """Send the request and read the answer's headers. The caller reads the body and closes it."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f'unsupported protocol scheme "{parts.scheme}"')
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    request = encode_request(parts.netloc, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers)
    # The response closes it; until there is one, errors must.
    sock = _connect(parts.scheme, host, port, deadline)
    try:
        connection = _DeadlineSocket(sock, deadline)
        connection.sendall(request)
        response = http.client.HTTPResponse(connection, method="GET")  # type: ignore[arg-type]
        response.begin()
        return response
    except BaseException:
        sock.close()
        raise


def _read(response: http.client.HTTPResponse) -> str:
    """The body, or its beginning."""
    try:
        body = response.read(MAX_RESPONSE_BODY_LENGTH)
    except TimeoutError as err:
        message = f"{err} (Client.Timeout or context cancellation while reading body)"
        raise BrokenAnswerError(message) from err
    except http.client.IncompleteRead as err:
        raise BrokenAnswerError("unexpected EOF") from err
    except (OSError, http.client.HTTPException) as err:
        raise BrokenAnswerError(str(err) or type(err).__name__) from err
    # A body of announced length that ends early is no error to http.client.
    if response.length and len(body) < MAX_RESPONSE_BODY_LENGTH:
        raise BrokenAnswerError("unexpected EOF")
    return body.decode(errors="replace")


def encode_request(host: str, target: str, headers: list[tuple[str, str]]) -> bytes:
    """What is sent. Raises ValueError for a header that cannot be."""
    host = next((value for name, value in headers if name.lower() == "host"), host)
    sent = [("Host", host), *((name, value) for name, value in headers if name.lower() not in _NOT_SENT)]
    for name, value in sent:
        _check_header(name, value)
    lines = [f"GET {quote(target, safe=_PLAIN)} HTTP/1.1", *(f"{name}: {value}" for name, value in sent)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode(errors="replace")


def _check_header(name: str, value: str) -> None:
    """Raises ValueError for what would end the header early, in the words of Go's client."""
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f'net/http: invalid header field name "{name}"')
    if _NOT_IN_HEADERS.search(value):
        raise ValueError(f'net/http: invalid header field value for "{name}"')


def _connect(scheme: str, host: str, port: int, deadline: float) -> socket.socket:
    sock = dial(host, port, _left(deadline))
    if scheme == "http":
        return sock
    try:
        sock.settimeout(_left(deadline))
        return _unverified().wrap_socket(sock, server_hostname=host)
    except TimeoutError as err:
        sock.close()
        raise TimeoutError("context deadline exceeded") from err
    except BaseException:
        sock.close()
        raise


@functools.cache
def _unverified() -> ssl.SSLContext:
    """One for all probes: making it takes longer than a probe."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _left(deadline: float) -> float:
    """Seconds until the deadline. Raises TimeoutError when there are none, in the words of Go's client."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("context deadline exceeded")
    return left


class _DeadlineSocket:
    """What http.client needs of a socket, with one deadline for all of it: a socket's own time-out begins anew with
    each byte, and a server that sends one a second would never be done.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_DeadlineReader(self._sock, self._deadline))


class _DeadlineReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            self._sock.settimeout(_left(self._deadline))
            return self._sock.recv_into(buffer)
        except TimeoutError:
            _left(self._deadline)
            raise

    def close(self) -> None:
        self._sock.close()
        super().close()


def _verdict(status: int, body: str) -> tuple[Result, str]:
    if 200 <= status < 300:
        return Result.SUCCESS, body
    if 300 <= status < 400:
        return Result.WARNING, f"Probe terminated redirects, Response body: {body}"
    klog.v(4).info_s("Probe failed", status=status, body=body)
    return Result.FAILURE, f"HTTP probe failed with statuscode: {status}"
