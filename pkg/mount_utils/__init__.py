"""Mounting and unmounting, and telling what is mounted.

Go: staging/src/k8s.io/mount-utils
"""

from pkg.mount_utils.mount import Interface, Mounter, MountPoint, parse_mount_info, path_exists

__all__ = ["Interface", "MountPoint", "Mounter", "parse_mount_info", "path_exists"]
