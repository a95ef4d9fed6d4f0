"""How much room a file system has, and how much a directory takes.

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

# Seconds that a file system has for an answer: a network's may never give one.
ANSWER_TIMEOUT = 10.0
# The same for a server that is asked by a process; and how long that process may take to end after it.
SERVER_ANSWER_TIMEOUT = 3.0
_KILL_TIMEOUT = 2.0
# What timeout(1) ends with when it had to kill.
_KILLED = 128 + signal.SIGKILL
# A path that the kernel's list of mounts shows as it is.
_PLAIN = re.compile(r"[!\"$-\[\]-~]*")
# What st_blocks counts in, whatever the file system's block size.
_BLOCK = 512
# Of those who count what is in a directory, few work at a time: a pod may have hundreds of volumes, and a million names
# in each. If a thread for each of them worked, all other threads would wait for the interpreter at each step. What is
# counted is on the kubelet's own disk: nobody waits for a server in a turn.
_turns = Turns()
# Entries that are counted, and directories that are entered or left, in one turn: half a millisecond, or a few when all
# are directories.
_STEPS_PER_TURN = 50

_lock = threading.Lock()
# The threads that wait for an answer, by path, and since when. Guarded by _lock.
_asked: dict[str, tuple[golang.Thread, float]] = {}


@dataclass(frozen=True, slots=True)
class UsageInfo:
    """What a directory takes, in bytes and inodes."""

    bytes: int
    inodes: int


@dataclass(frozen=True, slots=True)
class FsInfo:
    """What a file system has, in bytes and inodes."""

    available: int
    capacity: int
    usage: int
    inodes: int
    inodes_free: int
    inodes_used: int


def info(path: str) -> FsInfo:
    """Of the file system that path is on. Raises OSError, TimeoutError among them."""
    return _info(_answer(path, os.statvfs))


def infos(paths: Sequence[str]) -> dict[str, FsInfo]:
    """Of the file systems that these are on, without those that do not tell. Takes ANSWER_TIMEOUT at most for all.

    One thread asks them all, for a machine may have more than a thousand mounts. A thread for each would have the
    caller wait for its start, its answer and its end, each time until others let go of the interpreter: while these
    compute, a look at the machine would take many seconds instead of next to none.
    """
    asked = [path for path in paths if not _is_silent(path)]
    if not asked:
        return {}
    inquiry = _Inquiry(asked)
    began = monotonic()
    try:
        thread = golang.go(inquiry.run, name="file-systems")
    except golang.ThreadError as err:
        # As in _answer: no reason to tell nothing of what needs no thread.
        klog.error_s(err, "Unable to tell how full file systems are")
        return {}
    thread.join(ANSWER_TIMEOUT)
    if thread.is_alive():
        inquiry.given_up = True
        late = inquiry.path
        klog.warning_s("A file system does not tell how full it is", path=late, seconds=ANSWER_TIMEOUT)
        with _lock:
            # The next inquiry leaves this one out until it has answered, so that those behind it have their turn.
            _asked[late] = thread, began
    return dict(inquiry.answers)


def _is_silent(path: str) -> bool:
    """Whether somebody asks it who has had no answer in time."""
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
    """Asks file systems one after the other, on a thread of its own, until nobody wants to know any more."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        # Which one is asked now.
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
            except OSError as err:  # As when it is unmounted.
                klog.v(4).info_s("Unable to tell how full a file system is", path=path, err=err)
            except Exception as err:  # Whatever is wrong with this one, the others are asked.
                klog.error_s(err, "Unable to tell how full a file system is", path=path)


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
    """Of a file system that another machine serves. Raises OSError, TimeoutError among them.

    DIVERGES (safer): a process asks a server for the size of its file system, and is killed if there is no answer
    within three seconds.
    Go: pkg/volume/util/fs/fs.go, Info: a thread of the kubelet asks, and waits for ever.
    Why: a thread that waits for a server keeps the mount in use, so that nobody can unmount it until the server is
    back.
    Test: pkg/volume/metrics_test.py:test_server_is_asked_by_a_process
    """
    # Not killed by us, for the kubelet may end before: who then still waits would hold the mount.
    limit = ["timeout", "--foreground", "--signal=KILL", f"{SERVER_ANSWER_TIMEOUT:g}"]
    command = [*limit, "stat", "--file-system", "--format=%a %b %f %c %d %S", path]
    late = f"{path}: the server did not answer within {SERVER_ANSWER_TIMEOUT:g} seconds"
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
    """Of the directory and all below it on the same file system; files with several names count once.

    Raises OSError, TimeoutError among them, and ValueError without a path.

    DIVERGES (safer): each name of a file that has several counts as its part of the file, and a name outside of the
    directory is not counted.
    Go: pkg/volume/util/fs/fs.go, DiskUsage: the number of each such file is kept in memory, and the file counts as a
    whole.
    Why: a pod may make millions of names; none outside of the directory, as links do not cross its volume's mount in a
    container.
    Test: pkg/volume/metrics_test.py:test_du_counts_each_name_as_a_part_of_its_file
    """
    # Loaded when the first volume is measured.
    from kubelet.server import metrics as servermetrics

    if not path:
        raise ValueError("invalid directory")
    with servermetrics.collect_volume_stat_cal_duration("du"):
        return _count(path)


def _count(path: str) -> UsageInfo:
    top = _answer(path, os.stat)
    # The list of mounts knows no links, and one may lead to the kubelet's root directory.
    path = os.path.realpath(path)
    # Blocks and names of the files that have so many names each.
    found: Counter[int] = Counter()
    names: Counter[int] = Counter()
    turn = Turn(_turns)
    numbers = itertools.count(1)

    def step() -> None:
        if next(numbers) % _STEPS_PER_TURN == 0:
            turn.pass_on()

    with turn:
        for status in itertools.chain([top], _statuses(path, top.st_dev, step)):
            # A directory has one name; its links are those of the directories in it.
            links = 1 if stat.S_ISDIR(status.st_mode) else max(status.st_nlink, 1)
            found[links] += status.st_blocks
            names[links] += 1
    blocks = sum(count // links for links, count in found.items())
    return UsageInfo(blocks * _BLOCK, sum(count // links for links, count in names.items()))


def _statuses(path: str, device: int, step: Callable[[], None]) -> Iterator[os.stat_result]:
    """The status of everything below path on the device; what goes away meanwhile does not count.

    Calls step also for that, and for each directory that is entered or left: there may be nothing to count in millions.
    """
    for _, entry in filetree.walk(path, mounts=_mounts_below(path), on_move=step):
        step()
        with contextlib.suppress(FileNotFoundError):
            status = entry.stat(follow_symlinks=False)
            if status.st_dev == device:
                yield status


def _mounts_below(path: str) -> frozenset[str]:
    """The path has no links in it."""
    # To look for the path is much less work than to take the list apart, and most have nothing below.
    if _PLAIN.fullmatch(path) and os.fsencode(f" {path}/") not in Path(mount_utils.MOUNT_INFO).read_bytes():
        return frozenset()
    return frozenset(point.path for point in mount_utils.Mounter().list() if point.path.startswith(f"{path}/"))


def _answer(path: str, ask: Callable[[str], T]) -> T:
    """What ask says of the path. Raises TimeoutError when it says nothing in time, and while it has still not.

    Raises OSError, too, when there is no thread to ask: that is no reason to tell nothing of what needs none, such as
    the node's memory and processes. Who evicts pods because there are no more threads goes by these.

    DIVERGES (safer): a file system that has not answered within ten seconds is an error, also for those who ask later,
    and one thread waits on.
    Go: pkg/volume/util/fs/fs.go, Info: whoever asks waits, be it for ever.
    Why: the usage of all other volumes of the node would not be measured any more.
    Test: pkg/volume/metrics_test.py:test_dead_server_holds_up_nobody
    """
    result: golang.Channel[tuple[T | None, Exception | None]] = golang.Channel(1)

    def wait() -> None:
        try:
            result.send((ask(path), None))
        except Exception as err:  # raised for the one who asked
            result.send((None, golang.without_frames(err)))

    _wait_for_others(path)
    with _lock:
        try:
            thread = golang.go(wait, name=f"file-system-{path}")
        except golang.ThreadError as err:
            raise OSError(f"{path}: the file system cannot be asked: {err}") from err
        _asked[path] = thread, monotonic()
    answer, _ = result.recv(timeout=ANSWER_TIMEOUT)
    if answer is None:
        raise TimeoutError(f"{path}: the file system did not answer within {ANSWER_TIMEOUT:g} seconds")
    thread.join()
    with _lock:
        if path in _asked and _asked[path][0] is thread:
            del _asked[path]
    value, fault = answer
    if fault is not None:
        try:
            raise fault
        finally:
            # The error has this frame: together they would stay, with all who called, until garbage is collected.
            del answer, fault
    return value  # type: ignore[return-value]


def _wait_for_others(path: str) -> None:
    """Raises TimeoutError if somebody else's question has had no answer in time: ours would hang beside it."""
    with _lock:
        found = _asked.get(path)
    if found is None:
        return
    thread, since = found
    thread.join(max(since + ANSWER_TIMEOUT - monotonic(), 0.0))
    if thread.is_alive():
        raise TimeoutError(f"{path}: the file system has not answered yet")
