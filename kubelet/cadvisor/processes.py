"""What the processes of a container have open, and what went through its network.

Go: github.com/google/cadvisor/container/libcontainer/handler.go
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from kubelet.cadvisor.cgroups import files
from kubelet.cadvisor.info import v1 as info
from pkg.util import procfs

# Interfaces that are no container's way out, or one end of another's.
_IGNORED_DEVICES = ("lo", "veth", "docker", "nerdctl")
# Of a line of /proc/PID/net/dev: the name, then eight figures of what came in and eight of what went out.
_DEV_FIELDS = 17
_MAX_OPEN_FILES = "Max open files"
# Processes of one cgroup whose open files are counted.
MAX_EXAMINED_PROCESSES = 10_000
# Descriptors of these of which it is looked up whether they are sockets.
MAX_EXAMINED_FILES = 10_000
# Descriptors that are counted one by one, as before Linux 6.2.
MAX_COUNTED_FILES = 100_000
# Interfaces of one network.
MAX_INTERFACES = 256


def count_open_files(proc: str, pids: Sequence[int], root_pid: int, stats: info.ProcessStats) -> None:
    """Fill in what these have open, and the limits. root_pid is the container's first process, 0 if it is none.

    Takes as long as there are files: a system call for each, after which others may have the interpreter.
    """
    left = MAX_EXAMINED_FILES
    for pid in pids[:MAX_EXAMINED_PROCESSES]:
        left -= _count_open_files(f"{proc}/{pid}/fd", left, stats)
    if root_pid:
        stats.ulimits = _ulimits(_limits(f"{proc}/{root_pid}"))


def _count_open_files(directory: str, examine: int, stats: info.ProcessStats) -> int:
    """Add what a process has open, nothing for one that has ended; look for sockets among so many, and return how many.

    DIVERGES (safer): beyond MAX_EXAMINED_FILES of a cgroup, files are counted, and sockets among them are not.
    Go: github.com/google/cadvisor/container/libcontainer/handler.go, processStatsFromProcs: has no bound.
    Why: thousands of processes may each have a million files open, and all who ask for figures would wait.
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
    """Which Linux tells since 6.2; 0 before. Raises OSError."""
    return os.stat(directory).st_size


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # Closed since.


def _limits(directory: str) -> str:
    """ "" of a process that has ended."""
    try:
        return files.read(directory, "limits")
    except OSError:
        return ""


def _ulimits(text: str) -> list[info.UlimitSpec]:
    """Of all limits, that of open files."""
    found: list[info.UlimitSpec] = []
    for line in procfs.split_lines(text):
        if line.startswith(_MAX_OPEN_FILES):
            soft, hard, _unit = line.removeprefix(_MAX_OPEN_FILES).split()
            found.append(info.UlimitSpec(name="max_open_files", soft_limit=_ulimit(soft), hard_limit=_ulimit(hard)))
    return found


def _ulimit(text: str) -> int:
    return -1 if text == "unlimited" else int(text)


def network_stats(proc: str, pid: int) -> list[info.InterfaceStats]:
    """The interfaces of the network that this process sees. Raises OSError, ValueError."""
    lines = procfs.lines(f"{proc}/{pid}/net/dev")[2:]
    interfaces: list[info.InterfaceStats] = []
    # Who may make one in the network of a pod may make thousands.
    for line in lines[:MAX_INTERFACES]:
        # Of a name the kernel refuses only blanks, slashes and colons.
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
