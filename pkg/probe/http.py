"""Probe a container with a GET request.

Go: pkg/probe/http/http.go, request.go
"""

from __future__ import annotations

from pkg import golang, klog
from pkg.api.core import v1
from pkg.component_base import version
from pkg.probe import httpclient
from pkg.probe.dialer import join_host_port
from pkg.probe.probe import BrokenAnswerError, Result, resolve_container_port

# A pod may set this many headers for a probe or hook, with this many characters in total. The second limit also holds
# for the path. Over HTTP/2 a header takes three microseconds, and each redirect sends all headers again: 100,000
# headers took three seconds of processor time for one probe.
# DIVERGES (safer): an HTTP probe that exceeds MAX_REQUEST_HEADERS or MAX_REQUEST_LENGTH has no result in this kubelet,
# and such a hook fails.
# Go: pkg/probe/http/request.go, NewRequestForHTTPGetAction: the Go kubelet has no bound.
# Why: a few pods could keep the interpreter from all other work.
# Test: probe_test.py:test_request_has_no_headers_without_end
MAX_REQUEST_HEADERS = 256
MAX_REQUEST_LENGTH = 64 * 1024


def new_request_url(action: v1.HTTPGetAction, container: v1.Container, pod_ip: str) -> str:
    """Return the URL of the action. Raise ValueError for an unknown port, and for a path that is too long."""
    scheme = action.scheme.lower() or "http"
    port = resolve_container_port(action.port or 0, container)
    path = action.path
    if len(path) > MAX_REQUEST_LENGTH:
        raise ValueError(f"path has {len(path)} characters, more than {MAX_REQUEST_LENGTH}")
    if path and not path.startswith(("/", "?")):
        path = "/" + path
    return f"{scheme}://{join_host_port(action.host or pod_ip, port)}{path}"


def headers_of(action: v1.HTTPGetAction, purpose: str) -> list[tuple[str, str]]:
    """Return the action's headers plus the kubelet's defaults; an empty value in the action removes a default.

    Raise ValueError if there are too many headers, or they are too long.
    """
    if len(action.http_headers) > MAX_REQUEST_HEADERS:
        raise ValueError(f"there are {len(action.http_headers)} headers, more than {MAX_REQUEST_HEADERS}")
    length = sum(len(header.name) + len(header.value) for header in action.http_headers)
    if length > MAX_REQUEST_LENGTH:
        raise ValueError(f"headers have {length} characters, more than {MAX_REQUEST_LENGTH}")
    headers = [(header.name, header.value) for header in action.http_headers]
    names = {name.lower() for name, _ in headers}
    if "user-agent" not in names:
        info = version.get()
        headers.append(("User-Agent", f"kube-{purpose}/{info.major}.{info.minor}"))
    if "accept" not in names:
        headers.append(("Accept", "*/*"))
    own = ("user-agent", "accept", "host")
    return [(name, value) for name, value in headers if value or name.lower() not in own]


def probe_http(ctx: golang.Context, url: str, headers: httpclient.Headers, timeout: float) -> tuple[Result, str]:
    """GET the URL within `timeout` seconds, and follow redirects on the same host. Certificates are not verified.

    A redirect to another host is a warning: the container has responded, and its probe does not follow. Raise
    BrokenAnswerError if the response breaks off in its body, which says nothing about the container's health. Raise
    Canceled if ctx is cancelled, and NoSocketError. Go: DoHTTPProbe
    """
    limited, cancel = golang.with_timeout(ctx, timeout)
    try:
        response = httpclient.get(limited, url, headers, httpclient.PROTOCOLS)
    except httpclient.HTTPRequestError as err:
        if isinstance(ctx.err(), golang.Canceled):
            raise golang.Canceled from err
        return Result.FAILURE, f"{err} (Client.Timeout exceeded while awaiting headers)" if err.timeout else str(err)
    finally:
        cancel()
    if response.fault is not None:
        reason = " (Client.Timeout or context cancellation while reading body)" if response.fault.timeout else ""
        raise BrokenAnswerError(f"{response.fault.text}{reason}")
    return _verdict(response.status, response.body.decode(errors="replace"))


def _verdict(status: int, body: str) -> tuple[Result, str]:
    if 200 <= status < 300:
        return Result.SUCCESS, body
    if 300 <= status < 400:
        return Result.WARNING, f"Probe terminated redirects, Response body: {body}"
    klog.v(4).info_s("Probe failed", status=status, body=body)
    return Result.FAILURE, f"HTTP probe failed with statuscode: {status}"
