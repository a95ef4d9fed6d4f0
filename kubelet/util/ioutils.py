"""Writers with a limit.

Go: pkg/kubelet/util/ioutils/ioutils.go
"""

from __future__ import annotations

from typing import Protocol


class ShortWriteError(OSError):
    """Not all bytes were written because the limit was reached (Go: io.ErrShortWrite)."""

    def __init__(self) -> None:
        super().__init__("short write")


class Writer(Protocol):
    def write(self, data: bytes, /) -> int: ...


class LimitedWriter:
    """Writes to `w` until `n` bytes have gone through; `n` counts down."""

    def __init__(self, w: Writer, n: int) -> None:
        self.w = w
        self.n = n

    def write(self, data: bytes) -> int:
        """Write what fits and return its length; raises ShortWriteError if that is not all of it."""
        if self.n <= 0:
            raise ShortWriteError
        written = self.w.write(data[: self.n])
        truncated = len(data) > self.n
        self.n -= written
        if truncated:
            raise ShortWriteError
        return written


def limit_writer(w: Writer, n: int) -> LimitedWriter:
    """A writer that passes at most n bytes on to w."""
    return LimitedWriter(w, n)
