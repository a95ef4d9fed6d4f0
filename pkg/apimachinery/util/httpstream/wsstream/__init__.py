"""Carry streams over WebSockets, where each message begins with the number of its stream.

Go: k8s.io/streaming/pkg/httpstream/wsstream, k8s.io/apimachinery/pkg/util/httpstream/wsstream
"""

from pkg.apimachinery.util.httpstream.wsstream.conn import (
    WEBSOCKET_PROTOCOL_HEADER,
    is_websocket_request,
    is_websocket_request_with_stream_close_protocol,
    is_websocket_request_with_tunneling_protocol,
    protocols,
)

__all__ = [
    "WEBSOCKET_PROTOCOL_HEADER",
    "is_websocket_request",
    "is_websocket_request_with_stream_close_protocol",
    "is_websocket_request_with_tunneling_protocol",
    "protocols",
]
