"""Finds where the last lines of a file begin, reading it backwards.

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
    """Offset of the last n-th line, 0 for a negative n. An unfinished last line is not counted.

    Raises OSError.
    """
    return 0 if n < 0 else find_last_lines(f, n)[0]


def find_last_lines(f: BinaryIO, n: int) -> tuple[int, int]:
    """(offset of the last n-th line, or 0 if there are fewer; how many are missing then). Raises OSError."""
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
    """The last `limit` bytes of the file or fewer.

    Raises OSError, NotRegularFileError among them.

    DIVERGES (safer): only a regular file is opened.
    Go: pkg/util/tail/tail.go, ReadAtMost: opens whatever there is, and waits until somebody writes to a pipe.
    Why: a container whose termination message path is a pipe would keep its pod's status waiting for ever.
    Test: kubelet/kuberuntime/kuberuntime_container_test.py:test_termination_message_is_read_from_files_alone
    """
    with os.fdopen(regularfile.open_regular(path), "rb") as f:
        size = os.fstat(f.fileno()).st_size
        f.seek(max(size - limit, 0))
        # No more than there was: somebody may still write to it.
        return f.read(min(size, limit))
