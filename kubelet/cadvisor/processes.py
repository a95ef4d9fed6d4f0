"""Count the open files of a container's processes, and read its network statistics.

Go: github.com/google/cadvisor/container/libcontainer/handler.go
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from kubelet.cadvisor.cgroups import files
from kubelet.cadvisor.info import v1 as info
from pkg.util import procfs

# These interfaces do not connect a container with the outside, or are one end of another container's connection.
_IGNORED_DEVICES = ("lo", "veth", "docker", "nerdctl")
# A line of /proc/PID/net/dev has the name, then eight numbers for received and eight for sent data.
_DEV_FIELDS = 17
_MAX_OPEN_FILES = "Max open files"
# In one cgroup, the open files of at most this many processes are counted.
MAX_EXAMINED_PROCESSES = 10_000
# In one cgroup, at most this many descriptors are checked for sockets.
MAX_EXAMINED_FILES = 10_000
# Before Linux 6.2, descriptors are counted one by one, up to this number.
MAX_COUNTED_FILES = 100_000
# A network namespace may have this number of interfaces; others are ignored.
MAX_INTERFACES = 256


def count_open_files(proc: str, pids: Sequence[int], root_pid: int, stats: info.ProcessStats) -> None:
    """Fill in the open files of these processes, and the limits of `root_pid`, the container's first process (0: none).

    The function makes a system call for each open file, and other threads may run at each system call.
    """
    left = MAX_EXAMINED_FILES
    for pid in pids[:MAX_EXAMINED_PROCESSES]:
        left -= _count_open_files(f"{proc}/{pid}/fd", left, stats)
    if root_pid:
        stats.ulimits = _ulimits(_limits(f"{proc}/{root_pid}"))


def _count_open_files(directory: str, examine: int, stats: info.ProcessStats) -> int:
    """Add the open files of a process, or none if it has ended, and return how many were checked for sockets.

    DIVERGES (safer): beyond MAX_EXAMINED_FILES of a cgroup, the kubelet counts files but not the sockets among them.
    Go: github.com/google/cadvisor/container/libcontainer/handler.go, processStatsFromProcs: cAdvisor examines all
    files.
    Why: thousands of processes may each have a million open files, and all callers that ask for statistics would wait.
    Test: processes_test.py:test_only_so_many_files_are_looked_at
    """
    examined = counted = 0
    try:
        told = _number_of_files(directory)
        most = examine if told else MAX_COUNTED_FILES - stats.fd_count
        with os.scandir(directory) as entries:
            for entry in itertools.islice(entries, max(most, 0)):
                counted += 1
                if examined < examine:
                    examined += 1
                    stats.socket_count += _target(entry.path).startswith("socket")
    except OSError:
        return examined
    stats.fd_count += told or counted
    return examined


def _number_of_files(directory: str) -> int:
    """Return the number of open files that Linux reports since 6.2, or 0 on older kernels. Raise OSError."""
    return os.stat(directory).st_size


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # The file was closed meanwhile.


def _limits(directory: str) -> str:
    """Return the process's limits, or "" if it has ended."""
    try:
        return files.read(directory, "limits")
    except OSError:
        return ""


def _ulimits(text: str) -> list[info.UlimitSpec]:
    """Return the limit on open files."""
    found: list[info.UlimitSpec] = []
    for line in procfs.split_lines(text):
        if line.startswith(_MAX_OPEN_FILES):
            soft, hard, _unit = line.removeprefix(_MAX_OPEN_FILES).split()
            found.append(info.UlimitSpec(name="max_open_files", soft_limit=_ulimit(soft), hard_limit=_ulimit(hard)))
    return found


def _ulimit(text: str) -> int:
    return -1 if text == "unlimited" else int(text)


def network_stats(proc: str, pid: int) -> list[info.InterfaceStats]:
    """List the interfaces of this process's network namespace. Raise OSError or ValueError."""
    lines = procfs.lines(f"{proc}/{pid}/net/dev")[2:]
    interfaces: list[info.InterfaceStats] = []
    # A pod that may create interfaces in its network namespace may create thousands.
    for line in lines[:MAX_INTERFACES]:
        # An interface name may hold any character except blanks, slashes and colons.
        name, _, numbers = line.lstrip(" ").partition(":")
        fields = numbers.split()
        if len(fields) != _DEV_FIELDS - 1:
            raise ValueError(f"invalid interface stats line: {line}")
        if not is_ignored_device(name):
            received, sent = fields[0:4], fields[8:12]
            interfaces.append(info.InterfaceStats(name, *(int(value) for value in received + sent)))
    return interfaces


def is_ignored_device(name: str) -> bool:
    return name.lower().startswith(_IGNORED_DEVICES)
