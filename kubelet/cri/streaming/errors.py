"""Convert an error of a runtime to an HTTP response.

Go: k8s.io/cri-streaming/pkg/streaming/errors.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from pkg.util import grpcstatus

if TYPE_CHECKING:
    from pkg.golang import http

# A runtime keeps the URL of an unused stream for this time, in seconds.
CACHE_TTL = 60


def write_error(err: BaseException, w: http.ResponseWriter) -> None:
    """Write the error with status 404 for unknown objects, 429 for too many streams, and 500 otherwise."""
    status = 500
    match grpcstatus.code(err):
        case grpc.StatusCode.NOT_FOUND:
            status = 404
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            # After this time the unused URLs, which occupy the streams, have expired.
            w.headers.set("Retry-After", str(CACHE_TTL))
            status = 429
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.write_header(status)
    w.write(str(err).encode())
