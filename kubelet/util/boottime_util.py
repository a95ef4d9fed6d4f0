"""Find the time of the machine's boot.

Go: pkg/kubelet/util/boottime_util_linux.go
"""

from __future__ import annotations

import datetime
import time

from pkg import klog
from pkg.util import procfs

_PROC_STAT = "/proc/stat"


def get_boot_time() -> datetime.datetime:
    """Return the time of the machine's boot, to the second. Raise OSError if it is unknown."""
    try:
        return _get_boot_time_with_proc_stat()
    except (OSError, ValueError, OverflowError) as err:
        # If the clock was not set yet at the boot, the kernel writes a time before 1970 as an unsigned 64-bit number.
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
    # time of day: the summary shows this value.
    started = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=uptime)
    return started.replace(microsecond=0)
