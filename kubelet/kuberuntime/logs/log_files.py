"""A log as one stream of lines, though it was rotated and in part compressed.

The kubelet moves the log to `0.log.20060102-150405`, and later compresses that to `0.log.20060102-150405.gz`; the
runtime goes on in a new `0.log`.

This file has no Go counterpart; for what it shows beside the newest file, see read_logs.

DIVERGES (fault of Go): who follows a log gets all lines, also when it is rotated meanwhile.
Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: opens the new file at once, and does not read the old one to its end.
Why: lines that a slow client has yet to get, or that the runtime writes to the old file last, would be lost.
Test: log_files_test.py:test_slow_follower_misses_nothing,
log_files_test.py:test_file_is_followed_until_nobody_writes_to_it
"""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import signal
import zlib
from types import TracebackType
from typing import BinaryIO, Self, cast

from kubelet.kuberuntime.logs.tail import find_last_lines
from kubelet.kuberuntime.logs.turns import TURNS
from kubelet.logs import container_log_manager
from pkg import klog
from pkg.golang.turn import Turn
from pkg.util import regularfile

# So many bytes are read at once, and the rest of the line. No other thread runs while a block's lines are taken apart.
_BLOCK_SIZE = 64 * 1024
# Lines that are left out of a compressed log in one turn.
_LINES_AT_ONCE = 1000
# Runtimes cut a container's lines at some KiB.
MAX_LINE_LENGTH = 16 << 20
# How much of an unfinished line a message quotes, in bytes.
_QUOTED = 1024
_COMPRESSED = ".gz"
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
# Others rotate too, and give names of which the order is not known.
_ROTATED = re.compile(r"\.\d{8}-\d{6}(\.gz)?")


class LogFiles:
    """Hands out the lines of a log, oldest first, by `tail` and `since` those of fewer files.

    A context manager. At no time more than one file is open. Not for several threads.
    """

    def __init__(self, path: str, tail: int | None, since: float, rotated: bool = True) -> None:
        """tail: lines from the end, None for all; since: what was last written before this Unix time is left out;
        rotated: whether files are read that were rotated away before.

        Raises OSError, FileNotFoundError if there is no such log.
        """
        self._path = path
        # Rotated files, without their ".gz", that were read, are just being read, or are not wanted.
        self._seen: set[str] = set()
        # Those to read before the newest.
        self._older: list[str] = []
        self._file: BinaryIO | None = None
        # Whether that is the newest file, as far as is known.
        self._newest = False
        # Whether nobody writes to it any more.
        self._finished = False
        if rotated:
            self._start(tail, since)
        else:
            self._start_at_newest(tail)

    def _start_at_newest(self, tail: int | None) -> None:
        newest = os.fdopen(regularfile.open_regular(self._path), "rb")
        self._use(newest, newest=True)
        self._seen.update(self._rotated(other_than=newest))
        if tail is not None:
            start, _ = find_last_lines(newest, tail)
            newest.seek(start)

    def _start(self, tail: int | None, since: float) -> None:
        rotated = self._rotated()
        if not rotated:
            # A log that is not there is an error; one that is just being rotated has its older files.
            os.close(regularfile.open_regular(self._path))
        if tail is not None:
            self._start_at_tail(tail)
        if since > 0:
            self._seen.update(name for name in rotated if _last_write(name) < since)

    def _start_at_tail(self, tail: int) -> None:
        """Open the file that has the first of the last `tail` lines, at that line."""
        newest = _open(self._path)
        missing = tail
        if newest is not None:
            start, missing = find_last_lines(newest, tail)
            newest.seek(start)
        rotated = self._rotated(other_than=newest)
        wanted = len(rotated)
        while missing > 0 and wanted > 0:
            wanted -= 1
            if newest is not None:
                newest.close()
                newest = None
            missing = self._open_at_tail(rotated[wanted], missing)
        self._seen.update(rotated[: wanted + 1] if wanted < len(rotated) else rotated)
        if newest is not None:
            self._use(newest, newest=True)

    def _open_at_tail(self, name: str, tail: int) -> int:
        """Open a rotated file at the last `tail` lines; returns how many lines it lacks."""
        f = _open_rotated(name)
        if f is None:
            return tail
        self._use(f, newest=False)
        if not isinstance(f, gzip.GzipFile):
            start, missing = find_last_lines(f, tail)
            f.seek(start)
            return missing
        try:
            return _skip_to_tail(f, tail)
        except _BROKEN as err:
            self._log_broken(err)
            self._close()
            return tail

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def read(self, follow: bool, ended: bool = False) -> bytes:
        """Some of the next lines; nothing at the end of what is there.

        The very last may lack its newline, but not with follow: an unfinished line is read again when it is whole. With
        follow, and only then, the newest file is left for a newer, and any file only once nobody writes to it any more;
        ended: nobody does. Raises OSError, and ValueError for a line of more than MAX_LINE_LENGTH bytes.
        """
        while True:
            if self._file is None and not self._open_next():
                return b""
            data = self._read_block(follow)
            if data:
                return data
            if self._finished or not (follow or self._newest):
                self._close()
            elif not follow or not self._has_more(ended):
                return b""

    def _read_block(self, follow: bool) -> bytes:
        assert self._file is not None
        try:
            data = self._file.read(_BLOCK_SIZE)
            if not data.endswith(b"\n"):
                data += self._file.readline(MAX_LINE_LENGTH)
        except _BROKEN as err:
            self._log_broken(err)
            return b""
        if not data or data.endswith(b"\n"):
            return data
        end = data.rfind(b"\n") + 1
        if len(data) - end >= MAX_LINE_LENGTH:
            raise ValueError(f"log file {self._path} has a line of more than {MAX_LINE_LENGTH} bytes")
        if follow and not self._finished:
            self._file.seek(end - len(data), os.SEEK_CUR)
            return data[:end]
        klog.info_s("Incomplete line in log file", path=self._path, line=data[end : end + _QUOTED])
        return data

    def _log_broken(self, err: Exception) -> None:
        klog.error_s(err, "Left out the rest of a compressed log that is broken", path=self._path)

    def _has_more(self, ended: bool) -> bool:
        """Whether it is worth while to read our file again, after its end.

        If nobody writes to it any more: what was written before that was seen.
        """
        assert self._file is not None
        if self._newest and not self._was_rotated():
            return self._was_cut_short()
        # The runtime makes the new file before it has written to the old one all that it has at hand.
        self._finished = ended or not _is_written_to(self._file)
        return self._finished

    def _was_rotated(self) -> bool:
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            # The log was moved, and the runtime has not been told.
            return False
        if os.path.samestat(ours, current):
            return False
        self._newest = False
        self._mark_ours_seen(ours)
        return True

    def _was_cut_short(self) -> bool:
        """Whether somebody emptied the log, instead of moving it; then it is read from its new beginning."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size >= self._file.tell():
            return False
        self._file.seek(0)
        return True

    def _mark_ours_seen(self, ours: os.stat_result) -> None:
        unseen = [name for name in self._rotated() if name not in self._seen]
        same = [name for name in unseen if _same_file(name, ours)]
        # If it was compressed already it has another inode, and is the oldest of those that came since. An oldest one
        # that is not compressed is another log, which came after ours was removed.
        self._seen.update(same or [name for name in unseen[:1] if not os.path.lexists(name)])

    def _open_next(self) -> bool:
        """Open the oldest file that was not read; False if there is none, or none yet."""
        while True:
            while self._older:
                name = self._older.pop(0)
                self._seen.add(name)
                if (f := _open_rotated(name)) is not None:
                    self._use(f, newest=False)
                    return True
            newest = _open(self._path)
            # Looked for after the newest was opened, so that no file falls in between.
            self._older = [name for name in self._rotated(other_than=newest) if name not in self._seen]
            if not self._older:
                if newest is not None:
                    self._use(newest, newest=True)
                return newest is not None
            if newest is not None:
                newest.close()

    def _rotated(self, other_than: BinaryIO | None = None) -> list[str]:
        """Names of rotated files, without ".gz", oldest first."""
        names = [
            name.removesuffix(_COMPRESSED)
            for name in container_log_manager.get_all_logs(self._path)[:-1]
            if _ROTATED.fullmatch(name, len(self._path))
        ]
        if other_than is None:
            return names
        opened = os.fstat(other_than.fileno())
        return [name for name in names if not _same_file(name, opened)]

    def _use(self, f: BinaryIO, newest: bool) -> None:
        self._close()
        self._file, self._newest = f, newest
        # What is compressed was finished before.
        self._finished = isinstance(f, gzip.GzipFile)

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _open(path: str) -> BinaryIO | None:
    try:
        return os.fdopen(regularfile.open_regular(path), "rb")
    except FileNotFoundError:
        return None


def _is_written_to(f: BinaryIO) -> bool:
    """Whether somebody has the file open to write: only then the kernel refuses a lease to read it."""
    try:
        # Who opens it to write within the lease is not to have us killed, which is what the usual signal does.
        fcntl.fcntl(f, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        # A file system without leases. Then nobody knows.
        return False
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _open_rotated(name: str) -> BinaryIO | None:
    """None if it is gone: rotation removes the oldest."""
    if (plain := _open(name)) is not None:
        return plain
    try:
        fd = regularfile.open_regular(name + _COMPRESSED)
    except FileNotFoundError:
        return None
    try:
        return cast("BinaryIO", gzip.open(f"/proc/self/fd/{fd}", "rb"))
    finally:
        os.close(fd)


def _skip_to_tail(f: gzip.GzipFile, tail: int) -> int:
    """Go to the last `tail` lines; returns how many are lacking."""
    turn = Turn(TURNS)
    count = 0
    while block := f.read(_BLOCK_SIZE):
        with turn:
            count += block.count(b"\n")
    f.rewind()
    for begin in range(0, count - tail, _LINES_AT_ONCE):
        with turn:
            for _ in range(min(_LINES_AT_ONCE, count - tail - begin)):
                f.readline()
    return max(tail - count, 0)


def _last_write(name: str) -> float:
    """Unix time before which all lines are; for a compressed file it is late, which does no harm."""
    for path in (name, name + _COMPRESSED):
        try:
            return os.stat(path).st_mtime
        except FileNotFoundError:
            continue
    return 0.0


def _same_file(name: str, stat: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(name), stat)
    except FileNotFoundError:
        return False
