"""Which requests ask for WebSockets, and for what is spoken over them.

Go: k8s.io/streaming/pkg/httpstream/wsstream/conn.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.apimachinery.util import httpstream

if TYPE_CHECKING:
    from pkg.golang import http

WEBSOCKET_PROTOCOL_HEADER = "Sec-WebSocket-Protocol"
# Commands over WebSockets whose streams can be closed one by one.
STREAM_PROTOCOL_V5 = "v5.channel.k8s.io"
# What SPDY's own protocols are called when SPDY travels inside of WebSockets: with this before them.
TUNNELING_PREFIX = "SPDY/3.1+"
KUBERNETES_SUFFIX = ".k8s.io"


def is_websocket_request(req: http.Request) -> bool:
    return req.headers.get(httpstream.HEADER_UPGRADE).lower() == "websocket" and httpstream.is_upgrade_request(req)


def protocols(req: http.Request) -> list[str]:
    """The subprotocols that the client speaks, the one it likes best first."""
    values = req.headers.get_all(WEBSOCKET_PROTOCOL_HEADER)
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def is_websocket_request_with_stream_close_protocol(req: http.Request) -> bool:
    """Whether commands are to be run in the version in which a stream can be closed on its own."""
    return is_websocket_request(req) and STREAM_PROTOCOL_V5 in protocols(req)


def is_websocket_request_with_tunneling_protocol(req: http.Request) -> bool:
    """Whether the messages are to carry SPDY."""
    return is_websocket_request(req) and bool(tunneled_protocols(req))


def tunneled_protocols(req: http.Request) -> list[str]:
    """What is to be spoken over the SPDY inside, without the prefix."""
    return [
        name.removeprefix(TUNNELING_PREFIX)
        for name in protocols(req)
        if name.startswith(TUNNELING_PREFIX) and name.endswith(KUBERNETES_SUFFIX)
    ]
