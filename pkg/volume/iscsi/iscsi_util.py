"""Log in to and out of iSCSI targets with iscsiadm.

Go: pkg/volume/iscsi/iscsi_util.go
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.util import atomicfile, filesystem, removeall
from pkg.util import exec as utilexec
from pkg.volume.iscsi.iscsi_disk import ISCSIDisk
from pkg.volume.util import types as volumetypes

if TYPE_CHECKING:
    from pkg.volume.iscsi.iscsi import ISCSIPlugin
    from pkg.volume.plugins import VolumeHost
    from pkg.volume.util import device_util

# With several portals, two paths to the disk are enough, but only after two attempts with all portals.
MIN_MULTIPATH_COUNT = 2
MIN_ATTACH_ATTEMPTS = 2
MAX_ATTACH_ATTEMPTS = 5
# `MULTIPATH_DEVICE_TIMEOUT` is the time, in seconds, that the device-mapper device may take to appear, and
# `DEVICE_DISCOVERY_TIMEOUT` the time for the disk itself.
MULTIPATH_DEVICE_TIMEOUT = 10
DEVICE_DISCOVERY_TIMEOUT = 30

_PLUGIN_NAME = "kubernetes.io/iscsi"
_FILE = "iscsi.json"
# These are exit codes of iscsiadm.
_SESSION_EXISTS = 15
_SESSION_NOT_FOUND = 2
_NO_OBJECTS_FOUND = 21

_CHAP_DISCOVERY = [
    f"discovery.sendtargets.auth.{name}" for name in ("username", "password", "username_in", "password_in")
]
_CHAP_SESSION = [f"node.session.auth.{name}" for name in ("username", "password", "username_in", "password_in")]
_TRANSPORT_NAME = re.compile(r"iface\.transport_name = (.*)\n")
_IFACE = re.compile(r".+/iface-([^/]+)/.+")
# `_BEFORE_TARGET` is the separator between portal and target in the name of a disk's directory.
_BEFORE_TARGET = re.compile(r"-(?=(?:iqn|eui|naa)\.)")
# `_SAVED` maps the names of our fields to the keys of iscsi.json, which are those of Go.
_SAVED = {
    "volume_name": "VolName",
    "portals": "Portals",
    "iqn": "Iqn",
    "lun": "Lun",
    "init_iface": "InitIface",
    "iface": "Iface",
    "initiator_name": "InitiatorName",
}


class ISCSIUtil:
    """Attach disks with the node's iscsiadm."""

    def __init__(self, plugin: ISCSIPlugin) -> None:
        self._plugin = plugin

    def make_global_pd_name(self, disk: ISCSIDisk) -> str:
        own, *of_go = dirs_of_disk(self._plugin.host.get_plugin_dir(_PLUGIN_NAME), disk)
        # Use an existing directory of Go. Two mounts of the disk would forever keep each other from being unmounted.
        return next(filter(_is_named, of_go), own)

    def make_global_vdpd_name(self, disk: ISCSIDisk) -> str:
        return _disk_dir(self._plugin.host.get_volume_device_plugin_dir(_PLUGIN_NAME), disk.iface, disk)

    def attach_disk(self, disk: ISCSIDisk, volume_mode: str) -> str:
        transport = extract_transportname(self._iscsiadm(["-m", "iface", "-I", disk.init_iface, "-o", "show"]))
        # A concurrent detachment of another disk of the target counts the disks that still use the session.
        with self._plugin.target_locks.locked(disk.iqn):
            # DIVERGES (fault of Go): the kubelet writes how to log out to the disk's directory before the first login.
            # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: the Go kubelet writes it when the disk has
            # appeared.
            # Why: if the disk does not appear, or the write fails, the kubelet would never log out of the target.
            # Test: iscsi_test.py:test_disk_that_does_not_appear_is_detached_in_the_end,
            # iscsi_test.py:test_disk_whose_settings_cannot_be_written_is_not_attached
            self.persist_iscsi(disk, volume_mode)
            try:
                if disk.initiator_name:
                    self.clone_iface(disk)
                paths = self._log_in_to_all(disk, transport)
                timeout = MULTIPATH_DEVICE_TIMEOUT if len(disk.portals) > 1 else 1
                device = wait_for_multipath_to_exist(paths, timeout, self._plugin.devices)
            except OSError as err:
                # The node may be logged in over a portal.
                raise volumetypes.UncertainProgressError(str(err)) from err
        return device or paths[0]

    def _log_in_to_all(self, disk: ISCSIDisk, transport: str) -> list[str]:
        """Return the disk's device for each portal that was reached. Raise OSError if none was."""
        paths: dict[str, str] = {}
        last_err: OSError | None = None
        for attempt in range(1, MAX_ATTACH_ATTEMPTS + 1):
            for portal in disk.portals:
                if portal in paths:
                    continue
                try:
                    paths[portal] = self._device_of(disk, portal, transport)
                except OSError as err:
                    klog.error_s(err, "iscsi: no path to the disk over the portal", portal=portal, iqn=disk.iqn)
                    last_err = golang.without_frames(err)
            klog.v(4).info_s("iscsi: tried all devices", iqn=disk.iqn, attempts=attempt, found=len(paths))
            if not paths:
                # DIVERGES (fault of Go): the interface's settings stay if no portal can be reached.
                # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: the Go kubelet deletes them, even
                # settings that the node's administrator has made.
                # Why: no other disk could be attached with them, and the kubelet could not log out with those of this
                # disk.
                # Test: iscsi_test.py:test_disk_of_a_target_that_refuses_is_detached_in_the_end
                raise OSError(f"failed to get any path for iscsi disk, last err seen:\n{last_err}")
            if len(paths) == len(disk.portals):
                break
            if len(paths) >= MIN_MULTIPATH_COUNT and attempt >= MIN_ATTACH_ATTEMPTS:
                break
        return list(paths.values())

    def _device_of(self, disk: ISCSIDisk, portal: str, transport: str) -> str:
        """Log in over the portal, unless the node is already logged in, and wait for the disk."""
        hosts = self._plugin.devices.get_iscsi_portal_host_map_for_target(disk.iqn)
        if portal not in hosts:
            self._log_in(disk, portal)
            hosts = self._plugin.devices.get_iscsi_portal_host_map_for_target(disk.iqn)
            if portal not in hosts:
                raise OSError(f"could not get SCSI host number for portal {portal} after logging in")
        scan_one_lun(hosts[portal], int(disk.lun))
        if not transport:
            raise OSError(f"could not parse iface file for {disk.iface}")
        address = portal.replace("[", "").replace("]", "")
        prefix = "/dev/disk/by-path/ip" if transport == "tcp" else "/dev/disk/by-path/pci-*-ip"
        pattern = f"{prefix}-{address}-iscsi-{disk.iqn}-lun-{disk.lun}"
        found = wait_for_path_to_exist(pattern, DEVICE_DISCOVERY_TIMEOUT, transport)
        if not found:
            raise OSError(f"Timed out waiting for device at path {pattern} after {DEVICE_DISCOVERY_TIMEOUT}s")
        return found

    def _log_in(self, disk: ISCSIDisk, portal: str) -> None:
        discovery = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface]
        node = ["-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface]
        # The command fails if the record already exists.
        self._try([*discovery, "-o", "new"])
        try:
            self.update_iscsi_discoverydb(disk, portal)
        except OSError as err:
            raise OSError(f"iscsi: failed to update discoverydb to portal {portal} error: {err}") from err
        try:
            self._iscsiadm([*discovery, "--discover"])
        except OSError as err:
            self._try([*discovery, "-o", "delete"])
            raise OSError(f"iscsi: failed to sendtargets to portal {portal} output: {err}") from err
        try:
            self.update_iscsi_node(disk, portal)
        except OSError as err:
            raise OSError(f"iscsi: failed to update iscsi node to portal {portal} error: {err}") from err
        try:
            # DIVERGES (fault of Go): a login succeeds if there already is a session.
            # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: the login fails, and the Go kubelet deletes
            # the record of the target.
            # Why: without the record, the kubelet can never log out of the session.
            # Test: iscsi_test.py:test_session_that_was_overlooked_keeps_its_record
            self._iscsiadm([*node, "--login"], _SESSION_EXISTS)
        except OSError as err:
            self._try([*node, "-o", "delete"])
            raise OSError(f"iscsi: failed to attach disk: Error: {err}") from err
        # Otherwise the node would log in by itself at boot, and nothing would ever log out.
        self._try(["-m", "node", "-p", portal, "-T", disk.iqn, "-o", "update", "-n", "node.startup", "-v", "manual"])

    def update_iscsi_discoverydb(self, disk: ISCSIDisk, portal: str) -> None:
        if disk.chap_discovery:
            record = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface]
            self._set_chap(record, "discovery.sendtargets.auth.authmethod", _CHAP_DISCOVERY, disk.secret)

    def update_iscsi_node(self, disk: ISCSIDisk, portal: str) -> None:
        record = ["-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface]
        # Only the LUNs that pods use should appear, not all LUNs of the target.
        self._try([*record, "-o", "update", "-n", "node.session.scan", "-v", "manual"])
        if disk.chap_session:
            self._set_chap(record, "node.session.auth.authmethod", _CHAP_SESSION, disk.secret)

    def _set_chap(self, record: list[str], method: str, keys: Iterable[str], secret: dict[str, str]) -> None:
        self._iscsiadm([*record, "-o", "update", "-n", method, "-v", "CHAP"])
        for key in keys:
            if secret.get(key):
                self._iscsiadm([*record, "-o", "update", "-n", key, "-v", secret[key]])

    def clone_iface(self, disk: ISCSIDisk) -> None:
        """Copy the settings of init_iface, with the disk's initiator name. Raise OSError."""
        if disk.init_iface == disk.iface:
            raise OSError(f"iscsi: cannot clone iface with same name: {disk.init_iface}")
        params = parse_iscsiadm_show(self._iscsiadm(["-m", "iface", "-I", disk.init_iface, "-o", "show"]))
        params["iface.initiatorname"] = disk.initiator_name
        try:
            self._iscsiadm(["-m", "iface", "-I", disk.iface, "-o", "new"], _SESSION_EXISTS)
            for key in sorted(params):
                self._iscsiadm(["-m", "iface", "-I", disk.iface, "-o", "update", "-n", key, "-v", params[key]])
        except OSError as err:
            # The settings stay, for the reason in _log_in_to_all; Go deletes them.
            raise OSError(
                f"iscsi: failed to update iface records: {err}. iface({disk.init_iface}) will be used"
            ) from err

    def persist_iscsi(self, disk: ISCSIDisk, volume_mode: str) -> None:
        """Write how to log out to the disk's directory, unless the disk is already mounted on it."""
        if volume_mode == v1.PERSISTENT_VOLUME_BLOCK:
            directory = self.make_global_vdpd_name(disk)
        else:
            directory = self.make_global_pd_name(disk)
        is_of_go = os.path.basename(os.path.dirname(directory)) != f"iface-{disk.iface}"
        # After a boot of the node there is no session of Go's kubelet, and the settings that the Go kubelet has written
        # end none of this kubelet's sessions.
        if is_of_go and self._has_session(disk):
            klog.v(4).info_s("Skipping persistISCSI, the Go kubelet has written the settings", path=directory)
            return
        filesystem.mkdir_all(directory, 0o750)
        if not self._plugin.host.get_mounter().is_likely_not_mount_point(directory):
            klog.v(4).info_s("Skipping persistISCSI, the volume is already mounted", path=directory)
            return
        persist_iscsi_file(disk, directory)

    def _has_session(self, disk: ISCSIDisk) -> bool:
        """Report whether the node is logged in to the target over one of the disk's portals. Raise OSError."""
        return not self._plugin.devices.get_iscsi_portal_host_map_for_target(disk.iqn).keys().isdisjoint(disk.portals)

    def detach_disk(self, mount_path: str) -> None:
        with self._plugin.mount_locks.locked(mount_path):
            self._detach_disk_locked(mount_path)

    def _detach_disk_locked(self, mount_path: str) -> None:
        mounter = self._plugin.host.get_mounter()
        try:
            is_mounted = mounter.is_mount_point(mount_path)
        except FileNotFoundError:
            klog.warning_s("Warning: Unmount skipped because path does not exist", path=mount_path)
            return
        if is_mounted:
            mounter.unmount(mount_path)
            if mounter.is_mount_point(mount_path):
                # DIVERGES (safer): a disk that is still mounted after an unmount is an error, and the kubelet unmounts
                # it again later.
                # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachDisk: the Go kubelet then reads the file
                # iscsi.json from the disk itself.
                # Why: a pod may have written that file to make the kubelet log out of another target. Two volumes that
                # specify one portal with and without its port may mount a disk twice.
                # Test: iscsi_test.py:test_file_of_a_disk_that_is_still_mounted_is_not_taken_for_its_settings
                raise OSError(f"{mount_path} is still mounted after it was unmounted")
        self._detach(mount_path, self._try_to_delete_devices)

    def detach_block_iscsi_disk(self, map_path: str) -> None:
        # `exists` raises OSError if it cannot determine whether the path exists.
        if not filesystem.exists(map_path):
            klog.warning_s("Warning: Unmap skipped because path does not exist", path=map_path)
            return
        # DIVERGES (fault of Go): the kubelet logs out of a block volume's target whether or not the device exists.
        # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachBlockISCSIDisk: without a device over the first portal,
        # the detachment fails.
        # Why: there is no such device if the login used another portal, if the portal has an IPv6 address, or if the
        # target is gone; the kubelet would never log out.
        # Test: iscsi_test.py:test_block_volume
        self._detach(map_path)

    def _load(self, path: str) -> ISCSIDisk:
        """Read the disk of the directory from its file or, if that is missing or invalid, from the directory's name.

        Raise ValueError, or OSError if the file cannot be read now.

        DIVERGES (safer): if the file that describes how to log out cannot be read, for example for lack of a file
        descriptor, the kubelet reads it again later.
        Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachDisk: the Go kubelet then uses the name of the directory.
        Why: the name contains one portal, and the kubelet would never log out over the others.
        Test: iscsi_test.py:test_settings_that_cannot_be_read_now_are_waited_for
        """
        disk = ISCSIDisk(self._plugin, "")
        try:
            load_iscsi(disk, path)
        except (FileNotFoundError, ValueError) as err:
            klog.v(4).info_s(
                "iscsi: failed to read the settings for the logout, using the directory's name", path=path, err=err
            )
            portal, disk.iqn, disk.lun = parse_device_dir(path)
            disk.portals, disk.iface = [portal], extract_iface(path) or ""
        disk.portals = remove_duplicate(disk.portals)
        if not disk.portals:
            raise ValueError(
                "iscsi detach disk: failed to detach iscsi disk. Couldn't get connected portals from configurations"
            )
        return disk

    def _detach(self, path: str, delete_devices: Callable[[ISCSIDisk], None] | None = None) -> None:
        """Log out, unless another disk of the target uses the session, and remove the disk's directory.

        DIVERGES (fault of Go): the kubelet removes the disk's directory while it holds the lock of the target.
        Go: pkg/volume/iscsi/attacher.go, (*iscsiDetacher).UnmountDevice: the Go kubelet removes the directory after it
        has released the lock.
        Why: of two disks that are detached at the same time, each would find the directory of the other one, and the
        kubelet would never log out.
        Test: iscsi_test.py:test_disk_that_is_detached_counts_until_its_directory_is_gone
        """
        disk = self._load(path)
        with self._plugin.target_locks.locked(disk.iqn):
            if delete_devices is not None:
                delete_devices(disk)
            if not is_session_busy(self._plugin.host, disk.iqn):
                self.detach_iscsi_disk(disk)
            removeall.remove_all_one_filesystem(self._plugin.host.get_mounter(), path)

    def _try_to_delete_devices(self, disk: ISCSIDisk) -> None:
        """Make the kernel forget the disk, unless another volume uses it too.

        DIVERGES (fault of Go): the kernel keeps a disk that another volume uses too.
        Go: pkg/volume/iscsi/iscsi_util.go, deleteDevices: the Go kubelet makes the kernel forget the disk in any case.
        Why: two volumes with different portals may have the same disk, and the mount of one would break when the other
        is detached.
        Test: iscsi_test.py:test_disk_of_two_volumes_stays_until_both_are_detached
        """
        try:
            if get_vol_count(self._plugin.host, disk.iqn, disk.lun) <= 1:
                self.delete_devices(disk)
        except OSError as err:
            klog.warning_s("iscsi detach disk: failed to delete devices", err=err)

    def delete_devices(self, disk: ISCSIDisk) -> None:
        """Make the kernel forget the disk. Raise OSError."""
        names = self._plugin.devices.find_devices_for_iscsi_lun(disk.iqn, int(disk.lun))
        mapped = {self._plugin.devices.find_multipath_device_for_device(f"/dev/{name}") for name in names}
        for device in sorted(mapped - {""}):
            try:
                self._plugin.exec.run(["multipath", "-f", device])
            except (utilexec.CodeExitError, OSError) as err:
                klog.warning_s("Warning: Failed to flush multipath device map", device=device, err=err)
        for name in names:
            try:
                delete_device(name)
            except OSError as err:
                klog.warning_s("Warning: Failed to delete block device", device=name, err=err)

    def detach_iscsi_disk(self, disk: ISCSIDisk) -> None:
        """Log out of all portals, and remove their records and settings. Raise OSError."""
        has_iface = self._has_iface(disk.iface)
        iface = ["-I", disk.iface] if has_iface else []
        for portal in disk.portals:
            klog.info_s("iscsi: log out target", portal=portal, iqn=disk.iqn, iface=disk.iface)
            node = ["-m", "node", "-p", portal, "-T", disk.iqn]
            self._iscsiadm([*node, "--logout", *iface], _NO_OBJECTS_FOUND, _SESSION_NOT_FOUND)
            self._iscsiadm([*node, "-o", "delete", *iface], _NO_OBJECTS_FOUND, _SESSION_NOT_FOUND)
        is_own = disk.iface in (disk.iface_of_persistent_volume, disk.iface_of_pods)
        if disk.initiator_name and is_own and has_iface:
            self._iscsiadm(["-m", "iface", "-I", disk.iface, "-o", "delete"], _NO_OBJECTS_FOUND, _SESSION_NOT_FOUND)

    def _has_iface(self, name: str) -> bool:
        """Report whether settings of that name exist, because iscsiadm fails with an unknown name. Raise OSError.

        The settings may be missing: they are deleted before the disk's directory is removed, and if that fails, the
        detachment is retried.
        """
        if name in ("", "default"):
            return bool(name)
        try:
            self._iscsiadm(["-m", "iface", "-I", name, "-o", "show"])
        except OSError as err:
            if isinstance(err.__cause__, utilexec.CodeExitError):
                return False
            raise
        return True

    def _iscsiadm(self, arguments: list[str], *ignored_exit_codes: int) -> str:
        """Run iscsiadm and return its output. Raise OSError with the output if it fails.

        The arguments are never logged, because they may contain passwords.
        """
        try:
            return self._plugin.exec.run(["iscsiadm", *arguments]).decode(errors="replace")
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace")
            if err.code in ignored_exit_codes:
                klog.v(4).info_s("ignored iscsiadm exit code", code=err.code)
                return output
            raise OSError(f"{output.strip()} ({err})") from err
        except FileNotFoundError as err:
            # DIVERGES (safer): an error names the package that the node lacks if iscsiadm is missing.
            # Go: pkg/volume/iscsi/iscsi_util.go, execWithLog: the error says only that the executable does not exist.
            # Why: the author of the volume reads the error, and need not know which program attaches the volume.
            # Test: iscsi_test.py:test_node_without_the_tools_says_so
            raise OSError(
                "this node cannot attach iscsi volumes: iscsiadm is not installed (it comes with the package "
                "open-iscsi or iscsi-initiator-utils)",
            ) from err

    def _try(self, arguments: list[str]) -> None:
        """Run a command of iscsiadm whose failure does not matter."""
        try:
            self._iscsiadm(arguments)
        except OSError as err:
            klog.v(4).info_s("iscsiadm failed", err=err)


def _disk_dir(top: str, iface: str, disk: ISCSIDisk) -> str:
    return os.path.join(top, f"iface-{iface}", f"{disk.portals[0]}-{disk.iqn}-lun-{disk.lun}")


def dirs_of_disk(top: str, disk: ISCSIDisk) -> list[str]:
    """List the directories where the disk may be mounted: its own directory, or one that Go's kubelet has left.

    In Go, the directory of a disk with iface_of_pods has another name.
    """
    ifaces = [disk.iface, *([disk.iface_of_persistent_volume] if disk.iface == disk.iface_of_pods else [])]
    return [_disk_dir(top, iface, disk) for iface in ifaces]


def _is_named(path: str) -> bool:
    """Report whether the path exists by reading its parent, because a mount at the path may hang. Raise OSError."""
    return os.path.basename(path) in filesystem.names_in(os.path.dirname(path))


def persist_iscsi_file(disk: ISCSIDisk, directory: str) -> None:
    """Replace the file in one step, because for a block volume each new pod rewrites it. Raise OSError."""
    saved = {key: getattr(disk, name) for name, key in _SAVED.items()}
    atomicfile.write(Path(directory, _FILE), json.dumps(saved).encode(), 0o644)


def load_iscsi(disk: ISCSIDisk, directory: str) -> None:
    """Read the settings of the disk from the file. Raise OSError or ValueError."""
    path = os.path.join(directory, _FILE)
    with codec.reading(path):
        saved = json.loads(Path(path).read_text())
    if not isinstance(saved, dict):
        raise ValueError(f"{path}: not an object")
    for name, key in _SAVED.items():
        if key not in saved:
            continue
        kind = type(getattr(disk, name))
        value = saved[key] or kind()
        if not isinstance(value, kind) or not all(isinstance(each, str) for each in value):
            raise ValueError(f"{path}: {key} is no {kind.__name__}")
        setattr(disk, name, value)


def wait_for_path_to_exist(pattern: str, max_retries: int, transport: str) -> str:
    """Wait for the path to exist and return it; return "" if it does not appear.

    The path is a pattern unless the transport is tcp. The function checks once a second, max_retries times.
    """
    ctx = golang.background()
    for attempt in range(max_retries):
        if attempt:
            ctx.wait(1.0)
        if transport == "tcp":
            if os.path.exists(pattern):
                return pattern
        elif found := sorted(glob.glob(pattern)):
            return found[0]
    return ""


def wait_for_multipath_to_exist(paths: list[str], max_retries: int, devices: device_util.DeviceUtil) -> str:
    """Wait for a device-mapper device of the paths; return "" if none appears within max_retries seconds."""
    ctx = golang.background()
    for attempt in range(max_retries):
        if attempt:
            ctx.wait(1.0)
        for path in paths:
            if mapped := devices.find_multipath_device_for_device(path):
                return mapped
    return ""


def scan_one_lun(host_number: int, lun: int) -> None:
    """Make the kernel scan for one LUN. Raise OSError."""
    Path(f"/sys/class/scsi_host/host{host_number}/scan").write_text(f"0 0 {lun}")
    klog.v(3).info_s("Scanned SCSI host", host=host_number, lun=lun)


def delete_device(name: str) -> None:
    """Make the kernel forget the device. Raise OSError. A missing device is not an error."""
    try:
        Path(f"/sys/block/{name}/device/delete").write_text("1")
    except FileNotFoundError:
        return
    klog.v(4).info_s("Deleted block device", device=name)


def extract_transportname(iface_output: str) -> str:
    """Return the transport, which usually is "tcp", or "" if the output does not contain it."""
    match = _TRANSPORT_NAME.search(iface_output)
    if match is None:
        return ""
    return "tcp" if match[1] == "<empty>" else match[1]


def extract_device_and_prefix(path: str) -> tuple[str, str]:
    """Return the last part of a disk's directory, and everything before its LUN. Raise ValueError."""
    _, slash, device = path.rpartition("/")
    prefix, lun, _ = path.rpartition("-lun-")
    if not slash or not lun:
        raise ValueError(f"iscsi detach disk: malformatted mnt path: {path}")
    return device, prefix


def extract_iface(path: str) -> str | None:
    match = _IFACE.fullmatch(path)
    return match[1] if match is not None else None


def extract_portal_and_iqn(device: str) -> tuple[str, str]:
    """Return the portal and the target from the last part of a disk's directory. Raise ValueError.

    DIVERGES (fault of Go): a portal ends where the name of a target begins, with "iqn.", "eui." or "naa.".
    Go: pkg/volume/iscsi/iscsi_util.go, extractPortalAndIqn: a portal ends at its first dash, and a name that begins
    with "naa." is an error.
    Why: host names may contain dashes; after a restart, the kubelet would not find the mount of such a disk, and would
    never unmount it.
    Test: iscsi_test.py:test_names_of_directories
    """
    portal, *target = _BEFORE_TARGET.split(device, maxsplit=1)
    if not target:
        raise ValueError(f"iscsi detach disk: no portal and iqn in {device}")
    return portal, target[0].rpartition("-lun-")[0]


def parse_device_dir(path: str) -> tuple[str, str, str]:
    """Return the portal, the target and the LUN from the name of a disk's directory. Raise ValueError."""
    device, _ = extract_device_and_prefix(path)
    portal, iqn = extract_portal_and_iqn(device)
    lun = device.rpartition("-lun-")[2]
    if not lun.isascii() or not lun.isdigit():
        raise ValueError(f"failed to retrieve lun from {path}")
    return portal, iqn, lun


def remove_duplicate(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


def parse_iscsiadm_show(output: str) -> dict[str, str]:
    """Return the settings that have a value. Raise OSError if a line is invalid."""
    params = {}
    for line in output.split("\n"):
        if not line.startswith("iface.") or "<empty>" in line:
            continue
        match line.split():
            case ["iface.iscsi_ifacename", "=", _]:
                pass
            case [key, "=", value]:
                params[key] = value
            case words:
                raise OSError(f"error: invalid iface setting: {words}")
    return params


def is_session_busy(host: VolumeHost, iqn: str) -> bool:
    """Report whether more than one disk of the target is in use; return True when in doubt."""
    try:
        return get_vol_count(host, iqn) > 1
    except OSError as err:
        klog.error_s(err, "iscsi: could not determine volumes in use")
        return True


def get_vol_count(host: VolumeHost, iqn: str, lun: str | None = None) -> int:
    """Count the directories of the target's disks, or of one of them, mounted or mapped. Raise OSError.

    DIVERGES (fault of Go): all disks of the same target count, whatever their portals are.
    Go: pkg/volume/iscsi/iscsi_util.go, getVolCount: only disks count whose first portal is the same and whose target's
    name has the same beginning.
    Why: the session of a disk in use that lists the portals in another order would end, and a session that nothing uses
    would stay.
    Test: iscsi_test.py:test_session_stays_while_another_disk_uses_it_over_portals_in_another_order,
    iscsi_test.py:test_disk_of_another_target_keeps_no_session
    """
    directories = (host.get_plugin_dir(_PLUGIN_NAME), host.get_volume_device_plugin_dir(_PLUGIN_NAME))
    disks = (path.rpartition("-lun-") for directory in directories for path in disks_in(directory))
    return sum(target.endswith(f"-{iqn}") and lun in (None, number) for target, _, number in disks)


def disks_in(directory: str) -> Iterator[str]:
    """Yield the directories of all disks. Raise OSError."""
    try:
        with os.scandir(directory) as entries:
            ifaces = [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name != "volumeDevices"]
    except FileNotFoundError:
        return
    for iface in ifaces:
        yield from (os.path.join(iface, name) for name in os.listdir(iface))
