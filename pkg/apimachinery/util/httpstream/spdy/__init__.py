"""Implement SPDY/3.1 as far as kubectl, kubelets and runtimes use it: streams with headers over one connection.

No well-maintained Python library implements SPDY. The protocol is small, so this package implements it, without doing
input or output itself.

Go: k8s.io/apimachinery/pkg/util/httpstream/spdy, github.com/moby/spdystream/spdy
"""

from pkg.apimachinery.util.httpstream.spdy.framing import (
    MAX_DATA,
    Data,
    Frame,
    Framer,
    GoAway,
    Ping,
    ProtocolError,
    RstStream,
    SynReply,
    SynStream,
)
from pkg.apimachinery.util.httpstream.spdy.pings import PingFilter

HEADER_SPDY_31 = "SPDY/3.1"

__all__ = [
    "HEADER_SPDY_31",
    "MAX_DATA",
    "Data",
    "Frame",
    "Framer",
    "GoAway",
    "Ping",
    "PingFilter",
    "ProtocolError",
    "RstStream",
    "SynReply",
    "SynStream",
]
