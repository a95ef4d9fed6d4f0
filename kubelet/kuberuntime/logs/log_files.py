"""Read a log as one stream of lines, although it was rotated and partly compressed.

The kubelet renames the log to `0.log.20060102-150405`, and later compresses it to `0.log.20060102-150405.gz`. The
runtime continues in a new `0.log`.

This file has no Go counterpart. read_logs explains why the kubelet reads older files too.

DIVERGES (fault of Go): a client that follows a log gets all lines, even if the log is rotated meanwhile.
Go: k8s.io/cri-client/pkg/logs/logs.go, ReadLogs: the Go kubelet opens the new file at once, and does not read the old
one to its end.
Why: lines that a slow client has not received yet, or that the runtime writes last to the old file, would be lost.
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

# One read returns this many bytes and the rest of the last line. No other thread runs while the lines of a block are
# parsed.
_BLOCK_SIZE = 64 * 1024
# One turn skips this many lines of a compressed log.
_LINES_AT_ONCE = 1000
# Runtimes split the lines of containers after some KiB, so a valid log has no longer lines.
MAX_LINE_LENGTH = 16 << 20
# A message quotes this many bytes of an unfinished line.
_QUOTED = 1024
_COMPRESSED = ".gz"
_BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
# Other programs also rotate logs, with names whose order is unknown.
_ROTATED = re.compile(r"\.\d{8}-\d{6}(\.gz)?")


class LogFiles:
    """Return the lines of a log, oldest first, and skip files according to `tail` and `since`.

    The object is a context manager for one thread. It never has more than one file open.
    """

    def __init__(self, path: str, tail: int | None, since: float, rotated: bool = True) -> None:
        """Open the log.

        `tail` is the number of lines from the end, or None for all lines. Files that were last written before the Unix
        time `since` are skipped. `rotated` tells whether to read files that were rotated before.

        Raise OSError, or FileNotFoundError if there is no such log.
        """
        self._path = path
        # `_seen` holds the names, without ".gz", of the rotated files that are not needed or have been opened.
        self._seen: set[str] = set()
        # These files must be read before the newest one.
        self._older: list[str] = []
        self._file: BinaryIO | None = None
        # `_newest` tells whether `_file` is the newest file that this object has found.
        self._newest = False
        # `_finished` tells whether no program writes to `_file` any longer.
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
            # A missing log is an error, but a log that is being rotated has older files.
            os.close(regularfile.open_regular(self._path))
        if tail is not None:
            self._start_at_tail(tail)
        if since > 0:
            self._seen.update(name for name in rotated if _last_write(name) < since)

    def _start_at_tail(self, tail: int) -> None:
        """Open the file with the first of the last `tail` lines, and go to that line."""
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
        """Open a rotated file at the last `tail` lines; return the number of lines that it lacks."""
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
        """Return some of the next lines, or nothing at the current end.

        The last line may lack its newline, except with `follow`: an unfinished line is then read again once it is
        complete. Only with `follow`, the method switches from the newest file to a newer one, and it leaves any file
        only when no program writes to the file any longer. `ended` says that no program does. Raise OSError, or
        ValueError for a line of more than MAX_LINE_LENGTH bytes.
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
        klog.error_s(err, "Skipping the rest of a corrupt compressed log", path=self._path)

    def _has_more(self, ended: bool) -> bool:
        """Report whether the current file must be read again after its end was reached.

        If no program writes to the file any longer, the next read returns everything that was written before.
        """
        assert self._file is not None
        if self._newest and not self._was_rotated():
            return self._was_cut_short()
        # The runtime creates the new file before it has written all its buffered lines to the old one.
        self._finished = ended or not _is_written_to(self._file)
        return self._finished

    def _was_rotated(self) -> bool:
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        try:
            current = os.stat(self._path)
        except FileNotFoundError:
            # The log was renamed, but the runtime does not know this yet.
            return False
        if os.path.samestat(ours, current):
            return False
        self._newest = False
        self._mark_ours_seen(ours)
        return True

    def _was_cut_short(self) -> bool:
        """Report whether the log was truncated instead of renamed; if so, read it from its new beginning."""
        assert self._file is not None
        if os.fstat(self._file.fileno()).st_size >= self._file.tell():
            return False
        self._file.seek(0)
        return True

    def _mark_ours_seen(self, ours: os.stat_result) -> None:
        unseen = [name for name in self._rotated() if name not in self._seen]
        same = [name for name in unseen if _same_file(name, ours)]
        # If the current file has been compressed already, it has another inode, and is the oldest of the unseen files.
        # An oldest file that is not compressed is another log, which was created after the current file was removed.
        self._seen.update(same or [name for name in unseen[:1] if not os.path.lexists(name)])

    def _open_next(self) -> bool:
        """Open the oldest unread file; report False if there is none yet."""
        while True:
            while self._older:
                name = self._older.pop(0)
                self._seen.add(name)
                if (f := _open_rotated(name)) is not None:
                    self._use(f, newest=False)
                    return True
            newest = _open(self._path)
            # The list of rotated files must follow the opening of the newest file, so that no file is missed.
            self._older = [name for name in self._rotated(other_than=newest) if name not in self._seen]
            if not self._older:
                if newest is not None:
                    self._use(newest, newest=True)
                return newest is not None
            if newest is not None:
                newest.close()

    def _rotated(self, other_than: BinaryIO | None = None) -> list[str]:
        """Return the names of the rotated files without ".gz", oldest first."""
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
        # A compressed file is always finished.
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
    """Report whether a program has the file open for writing.

    Only in this case the kernel refuses a read lease on the file.
    """
    try:
        # If a program opens the file for writing during the lease, the kernel sends a signal. The default signal would
        # kill the kubelet.
        fcntl.fcntl(f, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except BlockingIOError:
        return True
    except OSError:
        # A file system without leases gives no information.
        return False
    fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _open_rotated(name: str) -> BinaryIO | None:
    """Open a rotated file; return None if rotation has removed it."""
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
    """Go to the last `tail` lines; return the number of lines that the file lacks."""
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
    """Return a Unix time after which the file has no lines.

    For a compressed file this time is too late, which does no harm.
    """
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
