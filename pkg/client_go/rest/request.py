"""Build queries, and describe failed requests in words.

Go: k8s.io/client-go/rest/request.go, and the errors that it returns, of net, net/url, crypto/tls
"""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.parse
from typing import Any

import msgspec

from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.runtime import codec
from pkg.client_go import transport
from pkg.golang import net

# An error shows at most this much of a response that cannot be parsed.
_MAX_TEXT_BYTES = 2048
_MAX_LINE = 80


class RequestTimeoutError(transport.TransportError, TimeoutError):
    """Signal that the server did not respond within the request's time limit."""


def query(params: dict[str, Any] | None) -> str:
    """Return the encoded query, with its parameters sorted by key as in Go."""
    pairs: list[tuple[str, str]] = []
    for key, value in sorted((params or {}).items()):
        for one in value if isinstance(value, list) else [value]:
            pairs.append((key, str(one).lower() if isinstance(one, bool) else str(one)))
    return urllib.parse.urlencode(pairs)


def is_valid_path_segment_name(name: str) -> list[str]:
    """Return why the name cannot be one segment of a path, or an empty list if it can."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{illegal}'" for illegal in "/%" if illegal in name]


def go_duration(seconds: float) -> str:
    """Return the duration in Go's form: 7m13s."""
    if seconds != int(seconds):
        return f"{seconds:g}s" if seconds < 60 else f"{int(seconds // 60)}m{seconds % 60:g}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def transport_error(verb: str, url: str, err: Exception, previous: Exception | None = None) -> transport.TransportError:
    """Return the error for a failed connection: `Get "https://…": connection refused`."""
    text = f'{verb.capitalize()} "{url}": {describe(err)}'
    if previous is not None and describe(previous) != describe(err):
        text += f" - error from a previous attempt: {describe(previous)}"
    if isinstance(err, TimeoutError):
        return RequestTimeoutError(text)
    return transport.TransportError(text)


def describe(err: Exception) -> str:
    """Return a one-line description of the error, in the words of Go's libraries where they have any."""
    match err:
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: x509: {_certificate_fault(err)}"
        case ssl.SSLEOFError() | http.client.RemoteDisconnected() | http.client.IncompleteRead():
            return "EOF"
        case http.client.BadStatusLine():
            return f"malformed HTTP response {str(err)[:_MAX_LINE]}"
        case transport.ConnectionLostError():
            return str(err)
        case net.DialTimeoutError():
            return f"dial tcp: {err}"
        case ssl.SSLError() if "ALERT" in (err.reason or ""):
            alert = (err.reason or "").partition("ALERT_")[2].replace("_", " ").lower()
            return f"remote error: tls: {alert}"
        case ssl.SSLError() if err.reason == "WRONG_VERSION_NUMBER":
            return "http: server gave HTTP response to HTTPS client"
        case ssl.SSLError():
            return f"tls: {(err.reason or str(err)).replace('_', ' ').lower()}"
        case socket.gaierror():
            return f"dial tcp: lookup failed: {err.strerror}"
        case ConnectionRefusedError():
            return "dial tcp: connect: connection refused"
        case TimeoutError():
            return "context deadline exceeded (no response in time)"
        case OSError() if err.strerror and not isinstance(err, transport.TransportError):
            where = f": {err.filename}" if err.filename else ""
            return f"{err.strerror}{where}".lower() if not where else f"{err.strerror}{where}"
    return str(err)[:_MAX_TEXT_BYTES] or type(err).__name__


def _certificate_fault(err: ssl.SSLCertVerificationError) -> str:
    match err.verify_code:
        case 18 | 19 | 20 | 21:
            return "certificate signed by unknown authority"
        case 10 | 9:
            return "certificate has expired or is not yet valid"
        case 62 | 64:
            return err.verify_message.rstrip(".")
    return err.verify_message or str(err)


def status_error(
    verb: str, resource: str, name: str, code: int, content_type: str, body: bytes, retry_after: int
) -> apierrors.StatusError:
    """Return the error for an unsuccessful response: the Status in its body, or else the meaning of its code."""
    try:
        status = codec.decode_json(body, metav1.Status)
        if status.kind == "Status" and status.status != "Success":
            return apierrors.from_status(msgspec.structs.replace(status, code=status.code or code))
    except (codec.DecodeError, msgspec.DecodeError):
        pass
    is_text = not content_type or content_type.startswith("text/")
    text = body[:_MAX_TEXT_BYTES].decode(errors="replace").strip() if is_text else "unknown"
    return apierrors.new_generic_server_response(code, verb, resource, name, text, retry_after)
