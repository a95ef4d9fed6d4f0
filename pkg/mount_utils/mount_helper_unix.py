"""Read the kernel's list of mounts, and distinguish a corrupted mount from a missing path.

Go: k8s.io/mount-utils/mount_helper_unix.go
"""

from __future__ import annotations

import errno
import functools
import os
import re
import select
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pkg import golang, klog
from pkg.util import procfs

MOUNT_INFO = "/proc/self/mountinfo"

_AT_LEAST_FIELDS = 10
# A list is read again this often until two consecutive results are equal.
_MAX_LIST_TRIES = 10
# This release is the first kernel that omits no mount from a list when another mount is removed during the read.
_WHOLE_LISTS_KERNEL_VERSION = (5, 8)
# The condition is checked after this many seconds even if no mount changes.
_RESYNC_PERIOD = 1.0
_OCTAL = re.compile(r"\\([0-7]{3})")
# The kernel appends this suffix to the path of a mount whose directory was lost on the server.
_DELETED = " (deleted)"
_CORRUPTED = frozenset(
    {
        errno.ENOTCONN,
        errno.ESTALE,
        errno.EIO,
        errno.EACCES,
        errno.EHOSTDOWN,
        errno.EWOULDBLOCK,
        errno.ENODEV,
    }
)


@dataclass(frozen=True, slots=True)
class MountInfo:
    """Describe one line of a mountinfo file."""

    id: int
    # `parent_id` is the id of the parent mount, or of the mount itself at the top of the namespace.
    parent_id: int
    # The two numbers name the device of the file system.
    major: int
    minor: int
    # `root` is the directory of the file system that is mounted.
    root: str
    mount_point: str
    mount_options: tuple[str, ...]
    # An example is "shared:12".
    optional_fields: tuple[str, ...]
    fs_type: str
    source: str
    # These options belong to the whole file system.
    super_options: tuple[str, ...]


def is_corrupted_mnt(err: BaseException | None) -> bool:
    """Report whether the error means that something is mounted but does not work."""
    return isinstance(err, OSError) and err.errno in _CORRUPTED


def parse_mount_info(filename: str) -> list[MountInfo]:
    """Return the mounts of a mountinfo file in its order. Log and skip invalid lines. Raise OSError."""
    infos = []
    for line in _read_mount_info(filename):
        try:
            infos.append(_parse_line(line))
        except ValueError as err:
            # One mount with such a name must not hide all others.
            klog.error_s(err, "Ignoring an invalid line of the mount table", path=filename, line=line)
    return infos


def mount_points(filename: str) -> frozenset[str]:
    """Return only the mount points of a mountinfo file, which is faster than parse_mount_info. Raise OSError."""
    fields = (line.split(" ", 5) for line in _read_mount_info(filename))
    return frozenset(_without_deleted(_unescape(each[4])) for each in fields if len(each) > 5)


@functools.cache
def _kernel_has_mountinfo_bug() -> bool:
    """Report whether the kernel's lists may be incomplete; True if the version is unknown."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return version is None or (int(version[1]), int(version[2])) < _WHOLE_LISTS_KERNEL_VERSION


def _read_mount_info(filename: str) -> list[str]:
    """Return the lines of a mountinfo file, which the kernel returns in pieces. Raise OSError.

    Go: readMountInfo, k8s.io/utils/io/read.go (ConsistentRead)
    """
    content = procfs.read(filename)
    if not _kernel_has_mountinfo_bug():
        return procfs.split_lines(content)
    for _ in range(_MAX_LIST_TRIES):
        before, content = content, procfs.read(filename)
        if content == before:
            return procfs.split_lines(content)
    raise OSError(f"could not get consistent content of {filename} after {_MAX_LIST_TRIES} attempts")


def _parse_line(line: str) -> MountInfo:
    """Parse one line. Raise ValueError."""
    # A source may be empty, so two spaces may follow each other.
    fields = line.split(" ")
    if len(fields) < _AT_LEAST_FIELDS:
        raise ValueError(f"wrong number of fields (expected at least {_AT_LEAST_FIELDS}, got {len(fields)})")
    dash = fields.index("-", 6)
    fs_type, source, super_options = fields[dash + 1 : dash + 4]
    major, minor = fields[2].split(":")
    return MountInfo(
        id=int(fields[0]),
        parent_id=int(fields[1]),
        major=int(major),
        minor=int(minor),
        root=_unescape(fields[3]),
        mount_point=_without_deleted(_unescape(fields[4])),
        mount_options=split_mount_options(fields[5]),
        optional_fields=tuple(fields[6:dash]),
        fs_type=fs_type,
        source=_unescape(source),
        super_options=split_mount_options(super_options),
    )


def split_mount_options(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of options. A comma between double quotes separates nothing."""
    # Every second part is inside quotes.
    parts = text.split('"')
    parts[1::2] = [part.replace(",", "\0") for part in parts[1::2]]
    return tuple(option.replace("\0", ",") for option in '"'.join(parts).split(",") if option)


def _without_deleted(path: str) -> str:
    """Return the path of the mount without the suffix for a directory that the server removed or renamed."""
    return path.removesuffix(_DELETED)


def _unescape(text: str) -> str:
    return text if "\\" not in text else _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def without_links_above(path: str) -> str:
    """Return the path as it appears in the list of mounts, without accessing a mount at the path."""
    above, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(above), name)


def path_exists(path: str) -> bool:
    """Report whether the path exists, following links.

    Raise OSError if that is unknown; is_corrupted_mnt says whether a corrupted mount is the reason. The function may
    block on a server that does not respond.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.access(path, os.F_OK):
            klog.warning_s("Potential stale file handle detected", path=path)
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path) from None
        return False
    return True


def wait_until(ctx: golang.Context, condition: Callable[[], bool], mount_info: str = MOUNT_INFO) -> None:
    """Return once the condition is true. It is checked when mounts change, and every second.

    Raise ctx.err() once ctx is done, and OSError. Go checks ten times a second.
    """
    with Path(mount_info).open("rb") as table:
        poller = select.poll()
        # From here on the kernel remembers changes, so that none is missed while the condition is checked.
        poller.register(table, select.POLLPRI)
        while not condition():
            ctx.raise_if_done()
            poller.poll(_RESYNC_PERIOD * 1000)
