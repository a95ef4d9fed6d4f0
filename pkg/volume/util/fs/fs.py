"""Measure how much space file systems have, and how much space directories use.

Go: pkg/volume/util/fs/fs.go
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import stat
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TypeVar

from pkg import golang, klog, mount_utils
from pkg.golang.turn import Turn, Turns
from pkg.util import exec as utilexec
from pkg.util import filetree

T = TypeVar("T")

# `ANSWER_TIMEOUT` is the time, in seconds, that a file system may take to respond. A network file system may never
# respond.
ANSWER_TIMEOUT = 10.0
# `SERVER_ANSWER_TIMEOUT` is the time, in seconds, that a file server may take to respond to a process, and
# `_KILL_TIMEOUT` the time that this process may take to end after a kill.
SERVER_ANSWER_TIMEOUT = 3.0
_KILL_TIMEOUT = 2.0
# `_KILLED` is the exit code of timeout(1) after it had to kill its command.
_KILLED = 128 + signal.SIGKILL
# `_PLAIN` matches a path that the kernel's list of mounts contains unescaped.
_PLAIN = re.compile(r"[!\"$-\[\]-~]*")
# `_BLOCK` is the unit of st_blocks in bytes, whatever the file system's block size is.
_BLOCK = 512
# Only few threads count directory entries at the same time, because a pod may have hundreds of volumes with a million
# names in each. If a thread for each of them worked, all other threads would wait for the interpreter's lock at each
# step. The counted directories are on the kubelet's own disk, so no thread waits for a server during its turn.
_turns = Turns()
# `_STEPS_PER_TURN` is the number of steps in one turn: entries that are counted, and directories that are entered or
# left. A turn takes half a millisecond, or a few milliseconds if all entries are directories.
_STEPS_PER_TURN = 50

_lock = threading.Lock()
# `_asked` holds the threads that wait for a response, by path, with the time of their start. `_lock` guards this
# dictionary.
_asked: dict[str, tuple[golang.Thread, float]] = {}


@dataclass(frozen=True, slots=True)
class UsageInfo:
    """Hold what a directory uses, in bytes and inodes."""

    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class FsInfo:
    """Hold the size and the usage of a file system, in bytes and inodes."""

    available: int
    capacity: int
    usage: int
    inodes: int
    inodes_free: int
    inodes_used: int


def info(path: str) -> FsInfo:
    """Return the size and the usage of the file system of path. Raise OSError; TimeoutError is one."""
    return _info(_answer(path, os.statvfs))


def infos(paths: Sequence[str]) -> dict[str, FsInfo]:
    """Return the sizes of the file systems of these paths, without those that do not respond.

    The call takes at most ANSWER_TIMEOUT. One thread asks all file systems, because a machine may have more than a
    thousand mounts. With a thread for each, the caller would wait three times per thread, for its start, its response
    and its end, until other threads release the interpreter's lock. While these compute, one measurement of the machine
    would take many seconds instead of a moment.
    """
    asked = [path for path in paths if not _is_silent(path)]
    if not asked:
        return {}
    inquiry = _Inquiry(asked)
    began = monotonic()
    try:
        thread = golang.go(inquiry.run, name="file-systems")
    except golang.ThreadError as err:
        # As in _answer: metrics that need no thread must still be reported.
        klog.error_s(err, "Failed to read the usage of file systems")
        return {}
    thread.join(ANSWER_TIMEOUT)
    if thread.is_alive():
        inquiry.given_up = True
        late = inquiry.path
        klog.warning_s("A file system did not report its usage in time", path=late, seconds=ANSWER_TIMEOUT)
        with _lock:
            # The next inquiry skips this path until the file system has responded, so that the paths after it are
            # reached.
            _asked[late] = thread, began
    return dict(inquiry.answers)


def _is_silent(path: str) -> bool:
    """Report whether a thread is waiting for this file system beyond the timeout."""
    with _lock:
        found = _asked.get(path)
        if found is None:
            return False
        thread, since = found
        if not thread.is_alive():
            del _asked[path]
            return False
        return monotonic() >= since + ANSWER_TIMEOUT


class _Inquiry:
    """Ask file systems one after the other, on a thread of its own, until the caller gives up."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        # `path` is the path whose file system is being asked.
        self.path = paths[0]
        self.answers: dict[str, FsInfo] = {}
        self.given_up = False

    def run(self) -> None:
        for path in self._paths:
            self.path = path
            if self.given_up:
                return
            try:
                self.answers[path] = _info(os.statvfs(path))
            except OSError as err:  # The file system may have been unmounted.
                klog.v(4).info_s("Failed to read the usage of a file system", path=path, err=err)
            except Exception as err:  # Whatever is wrong with this file system, the thread must query the others.
                klog.error_s(err, "Failed to read the usage of a file system", path=path)


def _info(stats: os.statvfs_result) -> FsInfo:
    return FsInfo(
        available=stats.f_bavail * stats.f_frsize,
        capacity=stats.f_blocks * stats.f_frsize,
        usage=(stats.f_blocks - stats.f_bfree) * stats.f_frsize,
        inodes=stats.f_files,
        inodes_free=stats.f_ffree,
        inodes_used=stats.f_files - stats.f_ffree,
    )


def info_of_server(path: str) -> FsInfo:
    """Return the size and the usage of a file system on a file server. Raise OSError; TimeoutError is one.

    DIVERGES (safer): a process asks a server for the size of its file system, and is killed if there is no response
    within three seconds.
    Go: pkg/volume/util/fs/fs.go, Info: a thread of the Go kubelet asks, and waits forever.
    Why: a thread that waits for a server keeps the mount in use, so that it cannot be unmounted until the server
    responds again.
    Test: pkg/volume/metrics_test.py:test_server_is_asked_by_a_process
    """
    # timeout(1) kills the process, not the kubelet, which may end first. A process that then still waited would keep
    # the mount in use.
    limit = ["timeout", "--foreground", "--signal=KILL", f"{SERVER_ANSWER_TIMEOUT:g}"]
    command = [*limit, "stat", "--file-system", "--format=%a %b %f %c %d %S", path]
    late = f"{path}: the server did not respond within {SERVER_ANSWER_TIMEOUT:g} seconds"
    try:
        output = utilexec.Executor().run(command, SERVER_ANSWER_TIMEOUT + _KILL_TIMEOUT)
    except utilexec.CommandTimedOutError as err:
        raise TimeoutError(late) from err
    except utilexec.CodeExitError as err:
        if err.code == _KILLED:
            raise TimeoutError(late) from err
        raise OSError(err.output.decode(errors="replace").strip()) from err
    available, blocks, free, inodes, inodes_free, size = map(int, output.split())
    return FsInfo(
        available=available * size,
        capacity=blocks * size,
        usage=(blocks - free) * size,
        inodes=inodes,
        inodes_free=inodes_free,
        inodes_used=inodes - inodes_free,
    )


def disk_usage(path: str) -> UsageInfo:
    """Return the usage of the directory and everything below it on the same file system.

    A file with several names counts once. Raise ValueError for an empty path, and OSError; TimeoutError is one.

    DIVERGES (safer): each name of a file with several names counts as a part of the file, and a name outside the
    directory does not count.
    Go: pkg/volume/util/fs/fs.go, DiskUsage: the Go kubelet keeps the inode number of each such file in memory, and
    counts the file as a whole.
    Why: a pod may create millions of names. It cannot create any outside the directory, because hard links do not cross
    the mount of its volume in a container.
    Test: pkg/volume/metrics_test.py:test_du_counts_each_name_as_a_part_of_its_file
    """
    # The module is loaded when the first volume is measured.
    from kubelet.server import metrics as servermetrics

    if not path:
        raise ValueError("invalid directory")
    with servermetrics.collect_volume_stat_cal_duration("du"):
        return _count(path)


def _count(path: str) -> UsageInfo:
    top = _answer(path, os.stat)
    # The kernel's list of mounts has no links in its paths, but the path of the kubelet's root directory may have one.
    path = os.path.realpath(path)
    # `found` counts the blocks of all files, and `names` their names, by the number of names that a file has.
    found: Counter[int] = Counter()
    names: Counter[int] = Counter()
    turn = Turn(_turns)
    numbers = itertools.count(1)

    def step() -> None:
        if next(numbers) % _STEPS_PER_TURN == 0:
            turn.pass_on()

    with turn:
        for status in itertools.chain([top], _statuses(path, top.st_dev, step)):
            # A directory has one name. Its link count includes the directories in it.
            links = 1 if stat.S_ISDIR(status.st_mode) else max(status.st_nlink, 1)
            found[links] += status.st_blocks
            names[links] += 1
    blocks = sum(count // links for links, count in found.items())
    return UsageInfo(blocks * _BLOCK, sum(count // links for links, count in names.items()))


def _statuses(path: str, device: int, step: Callable[[], None]) -> Iterator[os.stat_result]:
    """Yield the status of everything below path on the device. Skip entries that disappear meanwhile.

    Also call step for skipped entries and for each directory that is entered or left, because millions of directories
    may contain nothing to count.
    """
    for _, entry in filetree.walk(path, mounts=_mounts_below(path), on_move=step):
        step()
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if status.st_dev == device:
                yield status


def _mounts_below(path: str) -> frozenset[str]:
    """Return the mount points below path, which must have no links in it."""
    # Searching the text for the path is much faster than parsing it, and most paths have no mounts below them.
    if _PLAIN.fullmatch(path) and os.fsencode(f" {path}/") not in Path(mount_utils.MOUNT_INFO).read_bytes():
        return frozenset()
    return frozenset(point.path for point in mount_utils.Mounter().list() if point.path.startswith(f"{path}/"))


def _answer(path: str, ask: Callable[[str], T]) -> T:
    """Return the result of ask(path), which runs on a thread of its own.

    Raise TimeoutError if ask, or an earlier call for the same path, does not return in time. Raise OSError if no thread
    can be started. The caller must then still report what needs no thread, such as the node's memory and processes: the
    eviction manager relies on these when threads run out.

    DIVERGES (safer): a file system that has not responded within ten seconds is an error, for later callers too, and
    one thread continues to wait.
    Go: pkg/volume/util/fs/fs.go, Info: every caller waits, possibly forever.
    Why: the usage of all other volumes of the node would no longer be measured.
    Test: pkg/volume/metrics_test.py:test_dead_server_holds_up_nobody
    """
    result: golang.Channel[tuple[T | None, Exception | None]] = golang.Channel(1)

    def wait() -> None:
        try:
            result.send((ask(path), None))
        except Exception as err:  # The calling thread raises the error.
            result.send((None, golang.without_frames(err)))

    _wait_for_others(path)
    with _lock:
        try:
            thread = golang.go(wait, name=f"file-system-{path}")
        except golang.ThreadError as err:
            raise OSError(f"{path}: cannot query the file system: {err}") from err
        _asked[path] = thread, monotonic()
    answer, _ = result.recv(timeout=ANSWER_TIMEOUT)
    if answer is None:
        raise TimeoutError(f"{path}: the file system did not respond within {ANSWER_TIMEOUT:g} seconds")
    thread.join()
    with _lock:
        if path in _asked and _asked[path][0] is thread:
            del _asked[path]
    value, fault = answer
    if fault is not None:
        try:
            raise fault
        finally:
            # The error's traceback refers to this frame, and this frame to the error. Without `del` the cycle would
            # keep all callers' frames in memory until the garbage collector runs.
            del answer, fault
    return value  # type: ignore[return-value]


def _wait_for_others(path: str) -> None:
    """Wait for an earlier inquiry about the path.

    Raise TimeoutError if there is no response, because a second inquiry would hang too.
    """
    with _lock:
        found = _asked.get(path)
    if found is None:
        return
    thread, since = found
    thread.join(max(since + ANSWER_TIMEOUT - monotonic(), 0.0))
    if thread.is_alive():
        raise TimeoutError(f"{path}: the file system has not responded yet")
