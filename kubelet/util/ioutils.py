"""Limit the output of writers.

Go: pkg/kubelet/util/ioutils/ioutils.go
"""

from __future__ import annotations

from typing import Protocol


class ShortWriteError(OSError):
    """Signal that only a part of the bytes was written because of the limit (Go: io.ErrShortWrite)."""

    def __init__(self) -> None:
        super().__init__("short write")


class Writer(Protocol):
    def write(self, data: bytes, /) -> int: ...


class LimitedWriter:
    """Write at most `n` bytes to `w`; `n` is the remaining number."""

    def __init__(self, w: Writer, n: int) -> None:
        self.w = w
        self.n = n

    def write(self, data: bytes) -> int:
        """Write what the limit allows, and return its length. Raise ShortWriteError if that is not everything."""
        if self.n <= 0:
            raise ShortWriteError
        written = self.w.write(data[: self.n])
        truncated = len(data) > self.n
        self.n -= written
        if truncated:
            raise ShortWriteError
        return written


def limit_writer(w: Writer, n: int) -> LimitedWriter:
    """Return a writer that writes at most n bytes to w."""
    return LimitedWriter(w, n)
