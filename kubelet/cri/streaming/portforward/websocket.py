"""Find the ports in a request for port forwarding.

Go: k8s.io/cri-streaming/pkg/streaming/portforward/websocket.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pkg.apimachinery.util.httpstream import wsstream

if TYPE_CHECKING:
    from pkg.golang import http

PORT_HEADER = "port"


@dataclass(frozen=True, slots=True)
class V4Options:
    ports: list[int] = field(default_factory=list)


def new_v4_options(req: http.Request) -> V4Options:
    """Parse the ports of the query; over SPDY there are none, because each stream names its port. Raise ValueError."""
    if not wsstream.is_websocket_request(req):
        return V4Options()
    texts = req.query.get(PORT_HEADER, [])
    if not texts:
        raise ValueError(f'query parameter "{PORT_HEADER}" is required')
    if not all(texts):
        raise ValueError(f'query parameter "{PORT_HEADER}" cannot be empty')
    return V4Options([_parse_port(part, text) for text in texts for part in text.split(",")])


def _parse_port(part: str, text: str) -> int:
    if not (part.isascii() and part.isdigit()) or int(part) > 0xFFFF:
        raise ValueError(f'unable to parse "{text}" as a port: "{part}" is not a number up to 65535')
    if int(part) == 0:
        raise ValueError(f'port "{text}" must be > 0')
    return int(part)
