"""Define the headers that upgrade a connection to carry streams.

Go: k8s.io/apimachinery/pkg/util/httpstream/httpstream.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pkg.golang import http

HEADER_CONNECTION = "Connection"
HEADER_UPGRADE = "Upgrade"
HEADER_PROTOCOL_VERSION = "X-Stream-Protocol-Version"


def is_upgrade_request(req: http.Request) -> bool:
    return any("upgrade" in value.lower() for value in req.headers.get_all(HEADER_CONNECTION))
