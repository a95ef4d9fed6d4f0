"""Read the body of a response up to a size limit.

Go: net/http/transport.go (gzipReader), and the limits of its callers
"""

from __future__ import annotations

import http.client
import zlib

_CHUNK = 1 << 16
# `_PIECE` is the number of bytes of a gzip member that are decompressed first. The number doubles each time, up to
# `_MAX_PIECE`. After each member the remaining bytes are copied, and a member can be as short as twenty bytes.
_PIECE = 1 << 12
_MAX_PIECE = 1 << 20


def read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    """Return the whole body, decompressed if the headers say gzip.

    Raise ValueError if the body is longer than `limit` bytes, either as sent or decompressed. Raise OSError, EOFError,
    zlib.error or HTTPException if the body is truncated or cannot be decoded.
    """
    parts, left = [], limit
    while chunk := response.read1(_CHUNK):
        parts.append(chunk)
        left -= len(chunk)
        if left < 0:
            raise _too_long(limit)
    if response.length:  # read1 does not report a truncated response.
        raise http.client.IncompleteRead(b"", response.length)
    # With a Content-Length, read1 does not notice the end of the response, and its connection could not be reused.
    response.close()
    data = b"".join(parts)
    return decompress(data, limit) if response.headers.get("Content-Encoding") == "gzip" else data


def decompress(data: bytes, limit: int) -> bytes:
    """Return gzip data decompressed, which can be a thousand times as long.

    Raise ValueError if the result is longer than `limit` bytes, and EOFError or zlib.error if the data is truncated or
    not gzip.
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
    return ValueError(f"the response is longer than {limit} bytes")
