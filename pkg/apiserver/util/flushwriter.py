"""A response whose reader does not wait for more to come.

Go: k8s.io/apiserver/pkg/util/flushwriter/writer.go
"""

from __future__ import annotations

from pkg.golang import http


class FlushWriter:
    """Sends what is written at once."""

    def __init__(self, writer: http.ResponseWriter) -> None:
        self._writer = writer

    def write(self, data: bytes, /) -> int:
        """Raises http.ClientGone."""
        self._writer.write(data)
        self._writer.flush()
        return len(data)


def wrap(writer: http.ResponseWriter) -> FlushWriter:
    """The same response, for code that writes a stream."""
    return FlushWriter(writer)
