"""Find the start of the last lines of a file by reading it backwards.

Go: k8s.io/cri-client/pkg/logs/tail.go, pkg/util/tail/tail.go
"""

from __future__ import annotations

import os
from typing import BinaryIO

from kubelet.kuberuntime.logs.turns import TURNS
from pkg.golang.turn import Turn
from pkg.util import regularfile

_BLOCK_SIZE = 32 * 1024


def find_tail_line_start_index(f: BinaryIO, n: int) -> int:
    """Return the offset of the n-th line from the end, or 0 if n is negative.

    An unfinished last line does not count.

    Raise OSError.
    """
    return 0 if n < 0 else find_last_lines(f, n)[0]


def find_last_lines(f: BinaryIO, n: int) -> tuple[int, int]:
    """Return the offset of the n-th line from the end, and how many lines the file lacks.

    The offset is 0 if the file has fewer lines. Raise OSError.
    """
    turn = Turn(TURNS)
    left = right = f.seek(0, os.SEEK_END)
    count = 0
    block = b""
    while right > 0 and count <= n:
        left = max(right - _BLOCK_SIZE, 0)
        f.seek(left)
        block = f.read(right - left)
        with turn:
            count += block.count(b"\n")
        right = left
    start = 0
    for _ in range(count - n):
        start = block.index(b"\n", start) + 1
    return left + start, max(n - count, 0)


def read_at_most(path: str, limit: int) -> bytes:
    """Return at most the last `limit` bytes of the file.

    Raise OSError or its subclass NotRegularFileError.

    DIVERGES (safer): the kubelet opens only a regular file.
    Go: pkg/util/tail/tail.go, ReadAtMost: the Go kubelet opens any file, and blocks on a pipe until a program writes to
    it.
    Why: a container whose termination message path is a pipe would keep the status of its pod waiting forever.
    Test: kubelet/kuberuntime/kuberuntime_container_test.py:test_termination_message_is_read_from_files_alone
    """
    with os.fdopen(regularfile.open_regular(path), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        f.seek(max(size - limit, 0))
        # A program may still write to the file, so the read stops at the size that was measured.
        return f.read(min(size, limit))
