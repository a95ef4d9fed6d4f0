"""Examine files, devices and mounts of the host.

Go: pkg/volume/util/hostutil
"""

from pkg.volume.util.hostutil.hostutil import (
    FileType,
    HostUtil,
    HostUtils,
    get_device_name_from_mount,
    selinux_enabled,
    set_file_label,
)

__all__ = ["FileType", "HostUtil", "HostUtils", "get_device_name_from_mount", "selinux_enabled", "set_file_label"]
