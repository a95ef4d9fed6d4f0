"""Flush a response after each write.

Go: k8s.io/apiserver/pkg/util/flushwriter/writer.go
"""

from __future__ import annotations

from pkg.golang import http


class FlushWriter:
    """Send all written data at once."""

    def __init__(self, writer: http.ResponseWriter) -> None:
        self._writer = writer

    def write(self, data: bytes, /) -> int:
        """Write and flush the data; raise http.ClientGone on failure."""
        self._writer.write(data)
        self._writer.flush()
        return len(data)


def wrap(writer: http.ResponseWriter) -> FlushWriter:
    """Return a writer for a stream over this response."""
    return FlushWriter(writer)
