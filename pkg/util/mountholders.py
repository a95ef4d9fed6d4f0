"""Find the processes that keep a mount busy, from /proc alone.

This module never accesses a path below the mount, so a server that does not respond blocks nothing here.

Go has no counterpart: to find out, an operator must log in and run fuser.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pkg import mount_utils
from pkg.util import procfs

PROC = "/proc"
# At most this many open files of one process are examined, because a process may have millions.
MAX_EXAMINED_FILES = 10_000
# At most this many bytes of the list of one process's mapped files are read. With long paths the list may have hundreds
# of megabytes.
MAX_MAPS = 1 << 20
# At most this many bytes of /proc/PID/fdinfo/N are read. The third line names the mount of the open file. The file's
# locks come later, and there may be many.
MAX_FDINFO = 1 << 10

# These links in a process's directory keep their target busy.
_LINKS = {"cwd": "current directory", "root": "root directory", "exe": "program"}
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Describe a process and what it uses of the mount."""

    pid: int
    comm: str
    # An example is "current directory /mnt/a", with the path as the process sees it.
    what: str

    def __str__(self) -> str:
        return f"{self.comm} (pid {self.pid}, {self.what})"


def mounts_at_or_below(paths: Iterable[str], mount_info: str = mount_utils.MOUNT_INFO) -> list[mount_utils.MountInfo]:
    """Return the mounts at the paths and below them, in the order in which they were made. Raise OSError."""
    roots = tuple(paths)
    return [
        info
        for info in mount_utils.parse_mount_info(mount_info)
        if any(info.mount_point == root or info.mount_point.startswith(root + "/") for root in roots)
    ]


def find_holders(mounts: Sequence[mount_utils.MountInfo], proc: str = PROC) -> list[Holder]:
    """Return the processes that keep one of these mounts of our own namespace busy, one entry each.

    The search may take long.

    A process that ends meanwhile, or that may not be examined, is left out.
    """
    tables = _Tables(mounts, proc)
    found: list[Holder] = []
    for pid in _pids(proc):
        try:
            table = tables.of(pid)
            what = next(_held(Path(proc, str(pid)), table), None) if table.wanted else None
            if what is not None:
                comm = procfs.read(Path(proc, str(pid), "comm")).strip("\n")
                found.append(Holder(pid, comm, what))
        except OSError:
            continue
    return found


@dataclass(frozen=True, slots=True)
class _Table:
    """Hold the mounts of one namespace, and the ids of the wanted ones."""

    mounts: list[mount_utils.MountInfo]
    wanted: frozenset[int]

    def holds(self, path: str) -> bool:
        """Report whether the path, as seen in the namespace, is in a wanted mount."""
        here = [info for info in self.mounts if _below(path, info.mount_point)]
        # Of several mounts at one place, the last one is visible.
        deepest = max(here, key=lambda info: len(info.mount_point), default=None)
        last = [info.id for info in here if deepest is not None and info.mount_point == deepest.mount_point]
        return bool(last) and last[-1] in self.wanted


class _Tables:
    """Read the mounts of each namespace once."""

    def __init__(self, mounts: Sequence[mount_utils.MountInfo], proc: str) -> None:
        self._proc = proc
        self._targets = mounts
        own = mount_utils.parse_mount_info(os.path.join(proc, "self", "mountinfo"))
        self._known = {self._namespace("self"): _Table(own, frozenset(info.id for info in mounts))}

    def of(self, pid: int) -> _Table:
        namespace = self._namespace(str(pid))
        if namespace not in self._known:
            mounts = mount_utils.parse_mount_info(os.path.join(self._proc, str(pid), "mountinfo"))
            wanted = frozenset(info.id for info in mounts if self._is_copy(info))
            # A container may have a hundred thousand mounts of its own, in each of many namespaces.
            self._known[namespace] = _Table(mounts if wanted else [], wanted)
        return self._known[namespace]

    def _namespace(self, pid: str) -> str:
        return os.readlink(os.path.join(self._proc, pid, "ns", "mnt"))

    def _is_copy(self, info: mount_utils.MountInfo) -> bool:
        """Report whether the mount is a propagated copy of a target, so that it disappears together with the target."""
        return any(
            (info.major, info.minor, info.root) == (target.major, target.minor, target.root)
            and _peer_groups(info) & _peer_groups(target)
            for target in self._targets
        )


def _held(process: Path, table: _Table) -> Iterator[str]:
    """Yield what the process uses of the wanted mounts. Raise OSError if the process has ended."""
    for name, what in _LINKS.items():
        path = _readlink(process / name)
        if path is not None and table.holds(path):
            yield f"{what} {path}"
    for descriptor in _first_names(process / "fdinfo", MAX_EXAMINED_FILES):
        path = _readlink(process / "fd" / descriptor)
        # Objects outside of any mount, such as sockets, have names that are not paths. Their fdinfo may be huge: for an
        # epoll or inotify instance, the kernel lists each watched descriptor or file, and there may be millions.
        if path is not None and not path.startswith("/"):
            continue
        if _mount_id(process / "fdinfo" / descriptor) in table.wanted:
            yield f"open file {path}"
    for path in _mapped(process / "maps"):
        if table.holds(path):
            yield f"mapped file {path}"


def _mount_id(fdinfo: Path) -> int | None:
    try:
        with fdinfo.open("rb", buffering=0) as file:
            text = file.read(MAX_FDINFO)
    except OSError:
        return None
    lines = text.decode(errors="surrogateescape").split("\n")
    return next((int(line.split()[1]) for line in lines if line.startswith("mnt_id:")), None)


def _mapped(maps: Path) -> list[str]:
    """Return the files that are mapped into the process's memory, each once."""
    try:
        with maps.open("rb") as file:
            text = file.read(MAX_MAPS)
    except OSError:
        return []
    lines = procfs.split_lines(text.decode(errors="surrogateescape"))
    if len(text) == MAX_MAPS:
        del lines[-1]  # The last line may be truncated.
    fields = (line.split(maxsplit=5) for line in lines)
    paths = (each[5].removesuffix(_DELETED) for each in fields if len(each) == 6 and each[5].startswith("/"))
    return list(dict.fromkeys(paths))


def _readlink(path: Path) -> str | None:
    try:
        return os.readlink(path).removesuffix(_DELETED)
    except OSError:
        return None


def _first_names(path: Path, count: int) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.name for entry in islice(entries, count)]
    except OSError:
        return []


def _pids(proc: str) -> list[int]:
    return sorted(int(name) for name in os.listdir(proc) if name.isdigit())


def _peer_groups(info: mount_utils.MountInfo) -> set[str]:
    fields = (field.partition(":") for field in info.optional_fields)
    return {number for kind, _, number in fields if kind in ("shared", "master")}


def _below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
