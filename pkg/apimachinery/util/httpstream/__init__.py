"""Carry several streams over one upgraded HTTP connection.

Go: k8s.io/streaming/pkg/httpstream, k8s.io/apimachinery/pkg/util/httpstream
"""

from pkg.apimachinery.util.httpstream.httpstream import (
    HEADER_CONNECTION,
    HEADER_PROTOCOL_VERSION,
    HEADER_UPGRADE,
    is_upgrade_request,
)

__all__ = ["HEADER_CONNECTION", "HEADER_PROTOCOL_VERSION", "HEADER_UPGRADE", "is_upgrade_request"]
