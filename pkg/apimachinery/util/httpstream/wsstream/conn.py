"""Recognize requests for WebSockets, and the protocol inside of them.

Go: k8s.io/streaming/pkg/httpstream/wsstream/conn.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apimachinery.util import httpstream

if TYPE_CHECKING:
    from pkg.golang import http

WEBSOCKET_PROTOCOL_HEADER = "Sec-WebSocket-Protocol"
# This protocol runs commands over WebSockets, with streams that can be closed separately.
STREAM_PROTOCOL_V5 = "v5.channel.k8s.io"
# This prefix precedes the names of SPDY's own protocols when WebSockets carry SPDY.
TUNNELING_PREFIX = "SPDY/3.1+"
KUBERNETES_SUFFIX = ".k8s.io"


def is_websocket_request(req: http.Request) -> bool:
    return req.headers.get(httpstream.HEADER_UPGRADE).lower() == "websocket" and httpstream.is_upgrade_request(req)


def protocols(req: http.Request) -> list[str]:
    """Return the subprotocols that the client supports, in its order of preference."""
    values = req.headers.get_all(WEBSOCKET_PROTOCOL_HEADER)
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def is_websocket_request_with_stream_close_protocol(req: http.Request) -> bool:
    """Report whether the client requests the protocol in which a single stream can be closed."""
    return is_websocket_request(req) and STREAM_PROTOCOL_V5 in protocols(req)


def is_websocket_request_with_tunneling_protocol(req: http.Request) -> bool:
    """Report whether the messages are to carry SPDY."""
    return is_websocket_request(req) and bool(tunneled_protocols(req))


def tunneled_protocols(req: http.Request) -> list[str]:
    """Return the protocols for the SPDY connection inside of the WebSocket, without the prefix."""
    return [
        name.removeprefix(TUNNELING_PREFIX)
        for name in protocols(req)
        if name.startswith(TUNNELING_PREFIX) and name.endswith(KUBERNETES_SUFFIX)
    ]
