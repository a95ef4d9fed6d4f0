"""The body of an answer, no longer than it may be.

Go: net/http.Transport (gzipReader), and the limits of those who read
"""

from __future__ import annotations

import http.client
import zlib

_CHUNK = 1 << 16


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """All of the body, decompressed if its headers say gzip.

    Raises ValueError when it is longer than `limit` bytes, as sent or decompressed; OSError, EOFError, zlib.error and
    HTTPException when it breaks off or cannot be understood.
    """
    parts, left = [], limit
    while chunk := response.read1(_CHUNK):
        parts.append(chunk)
        left -= len(chunk)
        if left < 0:
            raise _too_long(limit)
    if response.length:  # read1 does not complain of an answer that is cut short
        raise http.client.IncompleteRead(b"", response.length)
    # Of an answer with a Content-Length read1 does not notice the end, and its connection could not be used again.
    response.close()
    data = b"".join(parts)
    return _decompress(data, limit) if response.headers.get("Content-Encoding") == "gzip" else data


def _decompress(data: bytes, limit: int) -> bytes:
    """What was compressed by gzip, which may be a thousand times as long."""
    parts, left = [], limit
    while data:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        part = member.decompress(data, left + 1)
        left -= len(part)
        if left < 0:
            raise _too_long(limit)
        if not member.eof:
            raise EOFError("unexpected EOF")
        parts.append(part)
        data = member.unused_data
    return b"".join(parts)


def _too_long(limit: int) -> ValueError:
    return ValueError(f"the answer is longer than {limit} bytes")
