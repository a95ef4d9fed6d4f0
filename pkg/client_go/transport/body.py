"""The body of an answer, no longer than it may be.

Go: net/http/transport.go (gzipReader), and the limits of those who read
"""

from __future__ import annotations

import http.client
import zlib

_CHUNK = 1 << 16
# Bytes of a member that are decompressed at first, and at most, at a time; each time it is twice as many. Those that
# are left are copied at the end of each member, of which there may be one for twenty bytes.
_PIECE = 1 << 12
_MAX_PIECE = 1 << 20


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
    return decompress(data, limit) if response.headers.get("Content-Encoding") == "gzip" else data


def decompress(data: bytes, limit: int) -> bytes:
    """What was compressed by gzip, which may be a thousand times as long.

    Raises ValueError when it is longer than `limit` bytes, EOFError and zlib.error when it is not complete or not gzip.
    """
    parts, left, position = [], limit, 0
    while position < len(data):
        member, size = zlib.decompressobj(zlib.MAX_WBITS | 16), _PIECE
        while not member.eof:
            piece = data[position : position + size]
            if not piece:
                raise EOFError("unexpected EOF")
            part = member.decompress(piece, left + 1)
            left -= len(part)
            if left < 0:
                raise _too_long(limit)
            parts.append(part)
            position += len(piece)
            size = min(2 * size, _MAX_PIECE)
        position -= len(member.unused_data)
    return b"".join(parts)


def _too_long(limit: int) -> ValueError:
    return ValueError(f"the answer is longer than {limit} bytes")
