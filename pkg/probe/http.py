"""Probing by a GET request.

Go: pkg/probe/http/http.go, request.go
"""

from __future__ import annotations

import http.client
import ssl
import time
from urllib.parse import urljoin, urlsplit

from pkg import klog
from pkg.api.core import v1
from pkg.component_base import version
from pkg.probe.probe import Result, resolve_container_port

MAX_RESPONSE_BODY_LENGTH = 10 * 1024
MAX_REDIRECTS = 10
_REDIRECTS = (301, 302, 303, 307, 308)


def new_request_url(action: v1.HTTPGetAction, container: v1.Container, pod_ip: str) -> str:
    """The URL of the action. Raises ValueError for a port that is not there."""
    scheme = action.scheme.lower() or "http"
    host = action.host or pod_ip
    host = f"[{host}]" if ":" in host else host
    port = resolve_container_port(action.port, container)
    path = action.path if action.path.startswith("/") else "/" + action.path
    return f"{scheme}://{host}:{port}{path}"


def headers_of(action: v1.HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    """The action's headers with the kubelet's own; an empty Accept leaves that one out."""
    headers = [(header.name, header.value) for header in action.http_headers]
    names = {name.lower() for name, _ in headers}
    if "user-agent" not in names:
        info = version.get()
        headers.append(("User-Agent", f"kube-{purpose}/{info.major}.{info.minor}"))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    return [(name, value) for name, value in headers if value or name.lower() != "accept"]


def probe_http(url: str, headers: list[tuple[str, str]], timeout: float) -> tuple[Result, str]:
    """GET the URL within timeout seconds, redirects on the same host included; certificates are not verified.

    A redirect to another host is a warning: the container answered, and its probe does not follow.
    """
    deadline = time.monotonic() + timeout
    first_host = urlsplit(url).hostname
    try:
        for _ in range(MAX_REDIRECTS):
            status, location, body = _get(url, headers, max(deadline - time.monotonic(), 0.001))
            target = urljoin(url, location)
            if status not in _REDIRECTS or not location or urlsplit(target).hostname != first_host:
                return _verdict(status, body)
            url = target
    except (OSError, http.client.HTTPException, ValueError) as err:
        return Result.FAILURE, f'Get "{url}": {err}'
    return Result.FAILURE, f'Get "{url}": stopped after {MAX_REDIRECTS} redirects'


def _get(url: str, headers: list[tuple[str, str]], timeout: float) -> tuple[int, str, str]:
    """Status, Location header and the first part of the body."""
    parts = urlsplit(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(
            parts.hostname or "", parts.port, timeout=timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        has_host = any(name.lower() == "host" for name, _ in headers)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.putrequest("GET", path, skip_host=has_host, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.putheader("Connection", "close")
        connection.endheaders()
        response = connection.getresponse()
        body = response.read(MAX_RESPONSE_BODY_LENGTH).decode(errors="replace")
        return response.status, response.getheader("Location", ""), body
    finally:
        connection.close()


def _verdict(status: int, body: str) -> tuple[Result, str]:
    if 200 <= status < 300:
        return Result.SUCCESS, body
    if 300 <= status < 400:
        return Result.WARNING, f"Probe terminated redirects, Response body: {body}"
    klog.v(4).info_s("Probe failed", status=status, body=body)
    return Result.FAILURE, f"HTTP probe failed with statuscode: {status}"
