"""Examine files, devices and mounts of the host.

Go: pkg/volume/util/hostutil/hostutil.go, hostutil_linux.go
"""

from __future__ import annotations

import enum
import errno
import os
import stat
from collections.abc import Callable
from typing import Protocol

from pkg import klog, mount_utils
from pkg.util import exec as utilexec

_SELINUX_ENFORCE = "/sys/fs/selinux/enforce"


class FileType(enum.StrEnum):
    """Name the type of a file, in the terms of hostPath volumes."""

    DIRECTORY = "Directory"
    FILE = "File"
    SOCKET = "Socket"
    CHARACTER_DEVICE = "CharDevice"
    BLOCK_DEVICE = "BlockDevice"


class HostUtils(Protocol):
    """Define what plugins need to know about the host's files. Every method is safe from any thread.

    Every method may raise OSError. A method that accesses the path may block forever if a file server does not respond.
    """

    def device_opened(self, path: str) -> bool:
        """Report whether the device at path is in exclusive use, for example by a mount."""
        ...

    def path_is_device(self, path: str) -> bool: ...

    def make_rshared(self, path: str) -> None:
        """Make mounts below path propagate to other mount namespaces and back."""
        ...

    def get_file_type(self, path: str) -> FileType: ...

    def path_exists(self, path: str) -> bool:
        """Report whether the path exists. A link whose target is missing does not exist."""
        ...

    def eval_host_symlinks(self, path: str) -> str: ...

    def get_owner(self, path: str) -> tuple[int, int]:
        """Return the user ID and the group ID."""
        ...

    def get_selinux_support(self, path: str) -> bool:
        """Report whether the file system of path supports SELinux labels. The method does not access the path."""
        ...

    def get_mode(self, path: str) -> int:
        """Return the permission bits. Links are followed."""
        ...

    def get_selinux_mount_context(self, path: str) -> str:
        """Return the -o context= that the file system of path was mounted with, or "".

        The method does not access the path.
        """
        ...


class HostUtil:
    """Examine the files of this host."""

    def device_opened(self, path: str) -> bool:
        return exclusive_open_fails_on_device(path)

    def path_is_device(self, path: str) -> bool:
        return self.get_file_type(path) in (FileType.CHARACTER_DEVICE, FileType.BLOCK_DEVICE)

    def get_device_name_from_mount(self, mounter: mount_utils.Interface, mount_path: str, plugin_mount_dir: str) -> str:
        return get_device_name_from_mount(mounter, mount_path, plugin_mount_dir)

    def make_rshared(self, path: str) -> None:
        do_make_rshared(path, mount_utils.MOUNT_INFO)

    def get_file_type(self, path: str) -> FileType:
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError as err:
            raise FileNotFoundError(f'path "{path}" does not exist') from err
        for test, file_type in (
            (stat.S_ISDIR, FileType.DIRECTORY),
            (stat.S_ISREG, FileType.FILE),
            (stat.S_ISSOCK, FileType.SOCKET),
            (stat.S_ISCHR, FileType.CHARACTER_DEVICE),
            (stat.S_ISBLK, FileType.BLOCK_DEVICE),
        ):
            if test(mode):
                return file_type
        raise OSError("only recognise file, directory, socket, block device and character device")

    def path_exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def eval_host_symlinks(self, path: str) -> str:
        return os.path.realpath(path, strict=True)

    def find_mount_info(self, path: str) -> mount_utils.MountInfo:
        return find_mount_info(path, mount_utils.MOUNT_INFO)

    def get_owner(self, path: str) -> tuple[int, int]:
        info = os.stat(path)
        return info.st_uid, info.st_gid

    def get_selinux_support(self, path: str) -> bool:
        return get_selinux(path, mount_utils.MOUNT_INFO, selinux_enabled)

    def get_mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)

    def get_selinux_mount_context(self, path: str) -> str:
        return get_selinux_mount_context(path, mount_utils.MOUNT_INFO, selinux_enabled)


def exclusive_open_fails_on_device(path: str) -> bool:
    """Report whether the device is in use; return False if path is not a device. Raise OSError."""
    try:
        mode = os.stat(path).st_mode
    except OSError as err:
        raise OSError(err.errno, f'PathIsDevice failed for path "{path}": {err.strerror}') from err
    if not (stat.S_ISBLK(mode) or stat.S_ISCHR(mode)):
        klog.error_s(None, "Path is not referring to a device", path=path)
        return False
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC))
    except OSError as err:
        if err.errno == errno.EBUSY:
            return True
        raise
    return False


def get_device_name_from_mount(mounter: mount_utils.Interface, mount_path: str, plugin_mount_dir: str) -> str:
    """Return the plugin's name of the volume that is mounted at the path: its path below the plugin's directory.

    Raise OSError if nothing is mounted there.
    """
    refs = mounter.get_mount_refs(mount_path)
    if not refs:
        raise OSError(f"directory {mount_path} is not mounted")
    for ref in refs:
        if ref.startswith(plugin_mount_dir):
            return os.path.relpath(ref, plugin_mount_dir)
    return os.path.basename(mount_path)


def is_shared(path: str, mount_info_path: str) -> bool:
    """Report whether the mount that path is on propagates."""
    info = find_mount_info(path, mount_info_path)
    return any(field.startswith("shared:") for field in info.optional_fields)


def find_mount_info(path: str, mount_info_path: str) -> mount_utils.MountInfo:
    """Return the mount that path is on; links are not followed. Raise OSError."""
    for info in reversed(mount_utils.parse_mount_info(mount_info_path)):
        if mount_utils.path_within_base(path, info.mount_point):
            return info
    raise OSError(f'cannot find mount point for "{path}"')


def do_make_rshared(path: str, mount_info_path: str) -> None:
    """Bind path to itself with shared propagation, unless it is on a shared mount. Raise OSError."""
    path = os.path.realpath(path)
    if is_shared(path, mount_info_path):
        klog.v(4).info_s("Directory is already on a shared mount", path=path)
        return
    klog.v(2).info_s("Bind-mounting with shared mount propagation", path=path)
    for command in (["mount", "--bind", path, path], ["mount", "--make-rshared", path]):
        try:
            utilexec.Executor().run(command)
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace").strip()
            raise OSError(f"failed to make {path} rshared: {' '.join(command)}: {output}") from err


def selinux_enabled() -> bool:
    return os.path.exists(_SELINUX_ENFORCE)


def set_file_label(path: str, label: str) -> None:
    """Set the SELinux label of the file. Raise OSError.

    Go: github.com/opencontainers/selinux/go-selinux (SetFileLabel)
    """
    os.setxattr(path, "security.selinux", label.encode())


def get_selinux(path: str, mount_info_path: str, enabled: Callable[[], bool]) -> bool:
    """Report whether the file system of path supports SELinux labels. Raise OSError."""
    if not enabled():
        return False
    info = find_mount_info(path, mount_info_path)
    return "seclabel" in info.super_options or "seclabel" in info.mount_options


def get_selinux_mount_context(path: str, mount_info_path: str, enabled: Callable[[], bool]) -> str:
    """Return the context= option that the file system of path was mounted with, or "". Raise OSError."""
    if not enabled():
        return ""
    for option in find_mount_info(path, mount_info_path).super_options:
        if option.startswith("context="):
            return option.removeprefix("context=").strip('"')
    return ""
