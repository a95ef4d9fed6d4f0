"""What both versions of cgroups offer, and what they share.

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
# A directory without directories: its name, and its own ".".
_LINKS_OF_LEAF = 2


class Cgroups(Protocol):
    """The machine's control groups, each by its name: "/kubepods/burstable". Safe from any thread."""

    def exists(self, name: str) -> bool: ...

    def names(self) -> list[str]:
        """All there are, parents before their children, the first is "/". Raises OSError."""
        ...

    def spec(self, name: str) -> info.ContainerSpec:
        """What the cgroup may have, and which figures there are of it.

        Raises OSError and ValueError when a file of it cannot be read or makes no sense.
        """
        ...

    def stats(self, name: str) -> info.ContainerStats:
        """What it has used so far.

        Raises OSError when it has gone or cannot be read, ValueError when a file makes no sense.
        """
        ...

    def processes(self, name: str) -> list[int]:
        """The processes right in it, as ids; none when it has gone. Raises OSError."""
        ...


def walk(mount_points: Sequence[str]) -> list[str]:
    """The names of all cgroups in these hierarchies, parents first. Raises OSError."""
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
    """Of a directory that has directories, which the count of its links tells without looking inside."""
    try:
        if os.stat(directory).st_nlink == _LINKS_OF_LEAF:
            return []
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []  # Gone in the meantime.
    except OSError as err:
        # DIVERGES (safer): cgroups that are so deep in each other that no path leads to them are passed over.
        # Go: github.com/google/cadvisor/container/common/helpers.go, ListDirectories: lists no cgroup at all then.
        # Why: a container that may make cgroups could hide all others.
        # Test: cgroups_test.py:test_cgroups_too_deep_for_any_path_keep_no_others_from_being_listed
        if err.errno == errno.ENAMETOOLONG:
            return []
        raise


def creation_time(directories: Sequence[str], unchanging_file: str) -> datetime:
    """When the cgroup was made: the oldest of its directories' times, not before the machine started.

    A directory's own time moves when a child is made in it; that of unchanging_file does not. A time to come does not
    count. A container whose cgroup is its own may set any, also one that is too late for a datetime.
    Go: getSpecInternal
    """
    now = time.time()
    found = [
        seconds
        for directory in directories
        for seconds in (files.modified(directory), files.modified(f"{directory}/{unchanging_file}"))
        if seconds is not None and seconds <= now
    ]
    # Compared as numbers, for the oldest may be too early for a datetime.
    return datetime.fromtimestamp(max(min(found), boot_time().timestamp()) if found else 0, UTC)


def boot_time() -> datetime:
    """When the machine started, to the minute."""
    started = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return datetime.fromtimestamp(started // _MINUTE * _MINUTE, UTC)


def process_ids(directory: str) -> list[int]:
    """The processes of the cgroup in this directory; none when it has gone or holds threads alone. Raises OSError."""
    return [int(line) for line in files.read_or_empty(directory, "cgroup.procs").split()]
