"""Since when the machine is up.

Go: pkg/kubelet/util/boottime_util_linux.go
"""

from __future__ import annotations

import datetime
import time

from pkg import klog
from pkg.util import procfs

_PROC_STAT = "/proc/stat"


def get_boot_time() -> datetime.datetime:
    """Since when the machine is up, to the second; raises OSError if nothing tells it."""
    try:
        return _get_boot_time_with_proc_stat()
    except (OSError, ValueError, OverflowError) as err:
        # The kernel writes a time before 1970, of a machine whose clock was not set yet, as a number of 64 bits.
        klog.info_s("Failed to get boot time from /proc/uptime. Will retry with unix.Sysinfo.", error=err)
        return _get_boot_time_with_sysinfo()


def _get_boot_time_with_proc_stat() -> datetime.datetime:
    for line in procfs.lines(_PROC_STAT):
        key, _, value = line.partition(" ")
        if key == "btime":
            return datetime.datetime.fromtimestamp(int(value), datetime.UTC)
    raise ValueError(f"can not find btime from {_PROC_STAT}")


def _get_boot_time_with_sysinfo() -> datetime.datetime:
    uptime = int(time.clock_gettime(time.CLOCK_BOOTTIME))
    # time of day: the summary shows it.
    started = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=uptime)
    return started.replace(microsecond=0)
