"""Mount, unmount, and find mounts.

Go: k8s.io/mount-utils
"""

from pkg.mount_utils.mount import (
    BindOptions,
    Interface,
    Mounter,
    MounterForceUnmounter,
    MountError,
    MountErrorType,
    MountPoint,
    SafeFormatAndMount,
    get_device_name_from_mount,
    get_disk_format,
    is_not_mount_point,
    make_bind_opts_sensitive,
    path_within_base,
    search_mount_points,
    starts_with_backstep,
)
from pkg.mount_utils.mount_helper_common import (
    clean_after_failed_mount,
    cleanup_mount_point,
    cleanup_mount_with_force,
)
from pkg.mount_utils.mount_helper_unix import (
    MOUNT_INFO,
    MountInfo,
    is_corrupted_mnt,
    mount_points,
    parse_mount_info,
    path_exists,
    wait_until,
    without_links_above,
)
from pkg.mount_utils.resizefs import ResizeFs

__all__ = [
    "MOUNT_INFO",
    "BindOptions",
    "Interface",
    "MountError",
    "MountErrorType",
    "MountInfo",
    "MountPoint",
    "Mounter",
    "MounterForceUnmounter",
    "ResizeFs",
    "SafeFormatAndMount",
    "clean_after_failed_mount",
    "cleanup_mount_point",
    "cleanup_mount_with_force",
    "get_device_name_from_mount",
    "get_disk_format",
    "is_corrupted_mnt",
    "is_not_mount_point",
    "make_bind_opts_sensitive",
    "mount_points",
    "parse_mount_info",
    "path_exists",
    "path_within_base",
    "search_mount_points",
    "starts_with_backstep",
    "wait_until",
    "without_links_above",
]
