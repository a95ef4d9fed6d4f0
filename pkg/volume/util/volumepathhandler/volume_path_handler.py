"""Bind and link block devices for pods, and keep the devices open with loop devices.

A device is bound to `GLOBAL_MAP_PATH/POD_UID`, and `pods/POD_UID/volumeDevices/PLUGIN/NAME` is a link to it.

Go: pkg/volume/util/volumepathhandler/volume_path_handler.go, volume_path_handler_linux.go
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Protocol

from pkg import klog, mount_utils
from pkg.apimachinery import types
from pkg.util import exec as utilexec
from pkg.util import filesystem, filetree, procfs, removeall

_SYS_BLOCK = "/sys/block"
_LOSETUP = "losetup"
# `LOSETUP_TIMEOUT` is the time, in seconds, that losetup may take to create or remove a loop device.
LOSETUP_TIMEOUT = 120.0
_DELETED = " (deleted)"


class DeviceNotFoundError(OSError):
    """Signal that the path has no loop device."""

    def __init__(self) -> None:
        super().__init__("device not found")


class BlockVolumePathHandler(Protocol):
    """Define how operations bind, link and hold block devices. Every method may raise OSError.

    Only operations call these methods, from their own threads.
    """

    def map_device(self, device_path: str, map_path: str, link_name: str, bind_mount: bool) -> None:
        """Bind the device to map_path/link_name, or make that path a link to the device."""
        ...

    def unmap_device(self, map_path: str, link_name: str, bind_mount: bool) -> None:
        """Undo map_device. A missing bind mount or link is not an error."""
        ...

    def remove_map_path(self, map_path: str) -> None:
        """Remove the directory with its content."""
        ...

    def is_symlink_exist(self, map_path: str) -> bool: ...

    def is_device_bind_mount_exist(self, map_path: str) -> bool: ...

    def get_device_bind_mount_refs(self, dev_path: str, map_path: str) -> list[str]:
        """List the bind mounts of devices in the directory. Raise FileNotFoundError if it does not exist."""
        ...

    def find_global_map_path_uuid_from_pod(self, plugin_dir: str, map_path: str, pod_uid: types.UID) -> str:
        """Find the bind mount below plugin_dir of the device that map_path links to. Return "" if there is none."""
        ...

    def attach_file_device(self, path: str) -> str:
        """Return the loop device of a file or device, which is created if necessary."""
        ...

    def detach_file_device(self, path: str) -> None:
        """Remove the loop device. A missing one is not an error."""
        ...

    def get_loop_device(self, path: str) -> str:
        """Return the loop device of the path. Raise DeviceNotFoundError if there is none."""
        ...


class VolumePathHandler:
    """Bind, link and hold block devices on this host."""

    def __init__(self, mounter: mount_utils.Interface | None = None, sys_block: str = _SYS_BLOCK) -> None:
        self._mounter = mounter or mount_utils.Mounter()
        self._sys_block = Path(sys_block)

    def map_device(self, device_path: str, map_path: str, link_name: str, bind_mount: bool) -> None:
        if not device_path:
            raise OSError("failed to map device to map path. devicePath is empty")
        if not map_path:
            raise OSError("failed to map device to map path. mapPath is empty")
        if not os.path.isabs(map_path):
            raise OSError(f"the map path should be absolute: map path: {map_path}")
        klog.v(5).info_s("MapDevice", devicePath=device_path, mapPath=map_path, linkName=link_name)
        filesystem.mkdir_all(map_path, 0o750)
        link_path = os.path.join(map_path, link_name)
        if bind_mount:
            self._map_bind_mount_device(device_path, link_path)
        else:
            _map_symlink_device(device_path, link_path)

    def unmap_device(self, map_path: str, link_name: str, bind_mount: bool) -> None:
        if not map_path:
            raise OSError("failed to unmap device from map path. mapPath is empty")
        klog.v(5).info_s("UnmapDevice", mapPath=map_path, linkName=link_name)
        link_path = os.path.join(map_path, link_name)
        if bind_mount:
            self._unmap_bind_mount_device(link_path)
        elif self.is_symlink_exist(link_path):
            os.remove(link_path)
        else:
            klog.warning_s("Unmap skipped because symlink does not exist on the path", path=link_path)

    def remove_map_path(self, map_path: str) -> None:
        if not map_path:
            raise OSError("failed to remove map path. mapPath is empty")
        klog.v(5).info_s("RemoveMapPath", mapPath=map_path)
        try:
            removeall.remove_all_one_filesystem(self._mounter, map_path)
        except OSError as err:
            raise OSError(f"failed to remove directory {map_path}: {err}") from err

    def is_symlink_exist(self, map_path: str) -> bool:
        return Path(map_path).is_symlink()

    def is_device_bind_mount_exist(self, map_path: str) -> bool:
        try:
            return _is_device(os.lstat(map_path).st_mode)
        except FileNotFoundError:
            return False

    def get_device_bind_mount_refs(self, dev_path: str, map_path: str) -> list[str]:
        with os.scandir(map_path) as entries:
            refs = sorted(entry.path for entry in entries if _is_device(entry.stat(follow_symlinks=False).st_mode))
        klog.v(5).info_s("GetDeviceBindMountRefs", refs=refs)
        return refs

    def find_global_map_path_uuid_from_pod(self, plugin_dir: str, map_path: str, pod_uid: types.UID) -> str:
        found = ""
        try:
            for directory, entry in filetree.walk(plugin_dir):
                if entry.name != pod_uid or entry.is_dir(follow_symlinks=False):
                    continue
                path = os.path.join(directory.path(), pod_uid)
                if self.is_device_bind_mount_exist(path) and _same_device(path, map_path):
                    found = path
        except OSError as err:
            raise OSError(f"FindGlobalMapPathUUIDFromPod failed: {err}") from err
        klog.v(5).info_s("FindGlobalMapPathFromPod", globalMapPathUUID=found)
        return found

    def attach_file_device(self, path: str) -> str:
        try:
            return self.get_loop_device(path)
        except DeviceNotFoundError:
            klog.v(4).info_s("Creating device for path", path=path)
        except OSError as err:
            raise OSError(f"GetLoopDevice failed for path {path}: {err}") from err
        _losetup("-f", path)
        return self._loop_device_from_sysfs(path)

    def detach_file_device(self, path: str) -> None:
        try:
            device = self.get_loop_device(path)
        except DeviceNotFoundError:
            klog.warning_s(
                "couldn't find loopback device which takes file descriptor lock. Skip detaching device", path=path
            )
            return
        try:
            _losetup("-d", device)
        except OSError as err:
            if os.path.exists(device):
                raise OSError(f"removeLoopDevice failed for path {path}: {err}") from err

    def get_loop_device(self, path: str) -> str:
        if not filesystem.exists(path):
            raise DeviceNotFoundError
        return self._loop_device_from_sysfs(path)

    def _loop_device_from_sysfs(self, path: str) -> str:
        paths = {path, os.path.realpath(path)}
        for device in sorted(self._sys_block.glob("loop*")):
            try:
                backing_file = procfs.read(device / "loop" / "backing_file")
            except OSError as err:
                # Either nothing is attached to the loop device, or the kernel cannot report its path, which is longer
                # than a page, so the kubelet did not create the loop device.
                if err.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                    continue
                raise
            if clean_backing_file_path(backing_file) in paths:
                return f"/dev/{device.name}"
        raise DeviceNotFoundError

    def _map_bind_mount_device(self, device_path: str, link_path: str) -> None:
        if self.is_device_bind_mount_exist(link_path):
            klog.warning_s("Map skipped because bind mount already exists on the path", path=link_path)
            return
        try:
            os.close(os.open(link_path, os.O_CREAT | os.O_RDWR, 0o750))
            self._mounter.mount_sensitive_without_systemd(device_path, link_path, "", ["bind"], [])
        except OSError as err:
            message = f"failed to bind mount devicePath: {device_path} to linkPath {link_path}: {err}"
            raise OSError(message) from err

    def _unmap_bind_mount_device(self, link_path: str) -> None:
        if self.is_device_bind_mount_exist(link_path):
            try:
                self._mounter.unmount(link_path)
            except OSError as err:
                raise OSError(f"failed to unmount linkPath {link_path}: {err}") from err
        else:
            klog.warning_s("Unmap skipped because bind mount does not exist on the path", path=link_path)
        try:
            os.remove(link_path)
        except FileNotFoundError:
            pass
        except OSError as err:
            raise OSError(f"failed to remove file {link_path}: {err}") from err


def clean_backing_file_path(path: str) -> str:
    """Return the path without the newline and the mark for a deleted file that the kernel appends."""
    return path.removesuffix("\n").removesuffix(_DELETED)


def _map_symlink_device(device_path: str, link_path: str) -> None:
    """Replace the link, because an existing one may be from before the last boot of the node."""
    try:
        os.remove(link_path)
    except FileNotFoundError:
        pass
    os.symlink(device_path, link_path)


def _is_device(mode: int) -> bool:
    return stat.S_ISBLK(mode) or stat.S_ISCHR(mode)


def _same_device(bound: str, link: str) -> bool:
    try:
        return os.stat(bound).st_rdev == os.stat(os.readlink(link)).st_rdev
    except OSError:
        return False


def _losetup(*arguments: str) -> None:
    failure = f"losetup {' '.join(arguments)} failed"
    try:
        utilexec.Executor().run([_LOSETUP, *arguments], LOSETUP_TIMEOUT)
    except utilexec.CommandTimedOutError as err:
        raise OSError(f"{failure}: {err}") from err
    except utilexec.CodeExitError as err:
        klog.v(2).info_s("losetup failed", arguments=arguments, output=err.output.decode(errors="replace"))
        raise OSError(f"{failure}: {err}") from err
