"""A runtime's refusal as an answer over HTTP.

Go: k8s.io/cri-streaming/pkg/streaming/errors.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from pkg.util import grpcstatus

if TYPE_CHECKING:
    from pkg.golang import http

# For how many seconds a runtime keeps the address of a stream that nobody has asked for yet.
CACHE_TTL = 60


def write_error(err: BaseException, w: http.ResponseWriter) -> None:
    """404 for what the runtime does not know, 429 when it serves too many streams, 500 for all else."""
    status = 500
    match grpcstatus.code(err):
        case grpc.StatusCode.NOT_FOUND:
            status = 404
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            # Whoever has all of them waiting has until then to come for them.
            w.headers.set("Retry-After", str(CACHE_TTL))
            status = 429
    w.headers.set("Content-Type", "text/plain; charset=utf-8")
    w.write_header(status)
    w.write(str(err).encode())
