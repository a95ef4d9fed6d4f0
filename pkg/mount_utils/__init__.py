"""Mounting and unmounting, and telling what is mounted.

Go: staging/src/k8s.io/mount-utils
"""

from pkg.mount_utils.mount import (
    Interface,
    Mounter,
    MountError,
    MountErrorType,
    MountPoint,
    parse_mount_info,
    path_exists,
)

__all__ = ["Interface", "MountError", "MountErrorType", "MountPoint", "Mounter", "parse_mount_info", "path_exists"]
