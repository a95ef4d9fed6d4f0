"""What the processes of a container have open, and what went through its network.

Go: github.com/google/cadvisor/container/libcontainer/handler.go
"""

from __future__ import annotations

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
# Descriptors of one cgroup's processes of which it is looked up whether they are sockets.
MAX_EXAMINED_FILES = 10_000


def count_processes(proc: str, pids: Sequence[int], root_pid: int, stats: info.ProcessStats) -> None:
    """Fill in all but the threads. root_pid is the container's first process, 0 for a cgroup that is no container."""
    stats.process_count = len(pids)
    for pid in pids:
        _count_open_files(f"{proc}/{pid}/fd", stats)
    if root_pid:
        stats.ulimits = _ulimits(files.read_or_empty(f"{proc}/{root_pid}", "limits"))


def _count_open_files(directory: str, stats: info.ProcessStats) -> None:
    """Add what a process has open, nothing for one that has ended.

    DIVERGES: Go looks at each file of each process. Here the sockets among the first MAX_EXAMINED_FILES of a cgroup
    count: its processes may have millions open, and would hold up all who ask for figures.
    """
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                stats.fd_count += 1
                if stats.fd_count <= MAX_EXAMINED_FILES:
                    stats.socket_count += _target(entry.path).startswith("socket")
    except OSError:
        return


def _target(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # Closed since.


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
    for line in lines:
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
