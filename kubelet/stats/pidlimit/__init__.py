"""Count the node's tasks, and read its limit for them.

Go: pkg/kubelet/stats/pidlimit/pidlimit.go, pidlimit_linux.go
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from kubelet.apis.stats import v1alpha1 as statsapi

__all__ = ["stats"]

# Each of these files contains a limit for the whole node.
_LIMITS = ("sys/kernel/pid_max", "sys/kernel/threads-max")


def stats(proc: str = "/proc") -> statsapi.RlimitStats:
    """Return the number of tasks, including threads, and their limit.

    Raise OSError and ValueError if the kernel does not count them.
    """
    return statsapi.RlimitStats(
        time=datetime.now(UTC),
        max_pid=min(_limits(proc), default=None),
        num_of_running_processes=running_task_count(proc),
    )


def _limits(proc: str) -> list[int]:
    """Return the limits that can be read."""
    found: list[int] = []
    for name in _LIMITS:
        try:
            found.append(int(Path(proc, name).read_text()))
        except (OSError, ValueError):
            continue
    return found


def running_task_count(proc: str = "/proc") -> int:
    """Return the number of tasks. Raise OSError and ValueError."""
    # The file contains, for example, "1.36 3.49 4.53 2/3518 3715089".
    fields = Path(proc, "loadavg").read_text().split()
    if len(fields) < 5:
        raise ValueError("not enough fields in /proc/loadavg")
    _, slash, total = fields[3].partition("/")
    if not slash:
        raise ValueError("error parsing fourth field of /proc/loadavg")
    return int(total)
