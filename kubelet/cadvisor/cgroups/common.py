"""Define the interface of the cgroup readers and what both versions share.

Go: github.com/google/cadvisor/container/common/helpers.go, github.com/google/cadvisor/container/libcontainer/helpers.go
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from kubelet.cadvisor.cgroups import files
from kubelet.cadvisor.info import v1 as info

_MINUTE = 60.0
# A directory without subdirectories has two links: its name and its own ".".
_LINKS_OF_LEAF = 2


class Cgroups(Protocol):
    """Define what the manager needs from a reader of the machine's cgroups. All methods are thread-safe.

    A cgroup's name is its path below the root, such as "/kubepods/burstable".
    """

    def exists(self, name: str) -> bool: ...

    def names(self) -> list[str]:
        """List the names of all cgroups, each parent before its children; "/" comes first. Raise OSError."""
        ...

    def spec(self, name: str) -> info.ContainerSpec:
        """Return the limits of the cgroup, and which statistics it has.

        Raise OSError or ValueError if one of its files cannot be read or parsed.
        """
        ...

    def stats(self, name: str) -> info.ContainerStats:
        """Return the cgroup's statistics.

        Raise OSError if the cgroup no longer exists or cannot be read, and ValueError if a file cannot be parsed.
        """
        ...

    def processes(self, name: str) -> list[int]:
        """List the ids of the cgroup's own processes. Raise OSError.

        The list is empty if the cgroup no longer exists.
        """
        ...


def walk(mount_points: Sequence[str]) -> list[str]:
    """List the names of all cgroups in these hierarchies, parents first. Raise OSError."""
    names: dict[str, None] = {"/": None}
    for mount_point in mount_points:
        names.update(dict.fromkeys(_below(mount_point)))
    return list(names)


def _below(mount_point: str) -> Iterator[str]:
    pending = [""]
    while pending:
        name = pending.pop()
        if name:
            yield name
        pending += [f"{name}/{child}" for child in sorted(_children(f"{mount_point}{name}"), reverse=True)]


def _children(directory: str) -> list[str]:
    """List the subdirectories. The directory's link count shows whether there are any without a scan."""
    try:
        if os.stat(directory).st_nlink == _LINKS_OF_LEAF:
            return []
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []  # The cgroup was removed meanwhile.
    except OSError as err:
        # DIVERGES (safer): the listing leaves out cgroups whose nesting makes their path too long.
        # Go: github.com/google/cadvisor/container/common/helpers.go, ListDirectories: the Go kubelet then lists no
        # cgroup at all.
        # Why: a container that may create cgroups could hide all others.
        # Test: cgroups_test.py:test_cgroups_too_deep_for_any_path_keep_no_others_from_being_listed
        if err.errno == errno.ENAMETOOLONG:
            return []
        raise


def creation_time(directories: Sequence[str], unchanging_file: str) -> datetime:
    """Return when the cgroup was created: the oldest time of its directories, but not before the machine's boot.

    The time of a directory changes when a child is created in it; the time of `unchanging_file` does not. Times in the
    future do not count. A container that owns its cgroup can set any time, even one that is too large for a datetime.
    Go: getSpecInternal
    """
    now = time.time()
    found = [
        seconds
        for directory in directories
        for seconds in (files.modified(directory), files.modified(f"{directory}/{unchanging_file}"))
        if seconds is not None and seconds <= now
    ]
    # Compare the times as numbers, because the oldest may be too early for a datetime.
    return datetime.fromtimestamp(max(min(found), boot_time().timestamp()) if found else 0, UTC)


def boot_time() -> datetime:
    """Return the time of the machine's boot, rounded down to the minute."""
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return datetime.fromtimestamp(started // _MINUTE * _MINUTE, UTC)


def process_ids(directory: str) -> list[int]:
    """List the processes of the cgroup in this directory. Raise OSError.

    The list is empty if the cgroup no longer exists or holds only threads.
    """
    return [int(line) for line in files.read_or_empty(directory, "cgroup.procs").split()]
