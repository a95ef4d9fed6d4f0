"""Logging in to and out of iSCSI targets with iscsiadm.

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

# With several portals two paths to the disk are enough, but only after two attempts at all of them.
MIN_MULTIPATH_COUNT = 2
MIN_ATTACH_ATTEMPTS = 2
MAX_ATTACH_ATTEMPTS = 5
# Seconds that the device mapper, and the device itself, may take to appear.
MULTIPATH_DEVICE_TIMEOUT = 10
DEVICE_DISCOVERY_TIMEOUT = 30

_PLUGIN_NAME = "kubernetes.io/iscsi"
_FILE = "iscsi.json"
# Exit codes of iscsiadm.
_SESSION_EXISTS = 15
_SESSION_NOT_FOUND = 2
_NO_OBJECTS_FOUND = 21

_CHAP_DISCOVERY = [
    f"discovery.sendtargets.auth.{name}" for name in ("username", "password", "username_in", "password_in")
]
_CHAP_SESSION = [f"node.session.auth.{name}" for name in ("username", "password", "username_in", "password_in")]
_TRANSPORT_NAME = re.compile(r"iface\.transport_name = (.*)\n")
_IFACE = re.compile(r".+/iface-([^/]+)/.+")
# What stands between portal and target in the name of a disk's directory.
_BEFORE_TARGET = re.compile(r"-(?=(?:iqn|eui|naa)\.)")
# Names in iscsi.json as Go writes them, by ours.
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
    """Attaches disks with the node's iscsiadm."""

    def __init__(self, plugin: ISCSIPlugin) -> None:
        self._plugin = plugin

    def make_global_pd_name(self, disk: ISCSIDisk) -> str:
        own, *of_go = dirs_of_disk(self._plugin.host.get_plugin_dir(_PLUGIN_NAME), disk)
        # Two mounts of the disk would for ever keep each other from being unmounted.
        return next(filter(_is_named, of_go), own)

    def make_global_vdpd_name(self, disk: ISCSIDisk) -> str:
        return _disk_dir(self._plugin.host.get_volume_device_plugin_dir(_PLUGIN_NAME), disk.iface, disk)

    def attach_disk(self, disk: ISCSIDisk, volume_mode: str) -> str:
        transport = extract_transportname(self._iscsiadm(["-m", "iface", "-I", disk.init_iface, "-o", "show"]))
        # A disk of the target that is detached meanwhile counts who still uses the session.
        with self._plugin.target_locks.locked(disk.iqn):
            # DIVERGES (fault of Go): how to log out is written to the directory of the disk before the first log-in.
            # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: it is written when the disk has appeared.
            # Why: if the disk does not appear, or nothing can be written, nobody ever logs out of the target.
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
                # It may be logged in over a portal.
                raise volumetypes.UncertainProgressError(str(err)) from err
        return device or paths[0]

    def _log_in_to_all(self, disk: ISCSIDisk, transport: str) -> list[str]:
        """The disk's device for each portal that could be reached. Raises OSError when none could."""
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
                # DIVERGES (fault of Go): the interface's settings stay when no portal can be reached.
                # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: they are deleted, also those that the
                # node's administrator has made.
                # Why: no other disk could be attached with them, and nobody could log out with those of this disk.
                # Test: iscsi_test.py:test_disk_of_a_target_that_refuses_is_detached_in_the_end
                raise OSError(f"failed to get any path for iscsi disk, last err seen:\n{last_err}")
            if len(paths) == len(disk.portals):
                break
            if len(paths) >= MIN_MULTIPATH_COUNT and attempt >= MIN_ATTACH_ATTEMPTS:
                break
        return list(paths.values())

    def _device_of(self, disk: ISCSIDisk, portal: str, transport: str) -> str:
        """Log in over the portal, unless logged in, and wait for the disk."""
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
        # Fails when the record is there already.
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
            # DIVERGES (fault of Go): a log-in succeeds if there is a session already.
            # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).AttachDisk: it is a failure, and the record of the target
            # is deleted.
            # Why: without the record, nobody can ever log out of the session.
            # Test: iscsi_test.py:test_session_that_was_overlooked_keeps_its_record
            self._iscsiadm([*node, "--login"], _SESSION_EXISTS)
        except OSError as err:
            self._try([*node, "-o", "delete"])
            raise OSError(f"iscsi: failed to attach disk: Error: {err}") from err
        # Otherwise the node would log in by itself when it starts, and nobody would ever log out.
        self._try(["-m", "node", "-p", portal, "-T", disk.iqn, "-o", "update", "-n", "node.startup", "-v", "manual"])

    def update_iscsi_discoverydb(self, disk: ISCSIDisk, portal: str) -> None:
        if disk.chap_discovery:
            record = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface]
            self._set_chap(record, "discovery.sendtargets.auth.authmethod", _CHAP_DISCOVERY, disk.secret)

    def update_iscsi_node(self, disk: ISCSIDisk, portal: str) -> None:
        record = ["-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface]
        # Only the LUNs that pods use are to appear, not all that the target has.
        self._try([*record, "-o", "update", "-n", "node.session.scan", "-v", "manual"])
        if disk.chap_session:
            self._set_chap(record, "node.session.auth.authmethod", _CHAP_SESSION, disk.secret)

    def _set_chap(self, record: list[str], method: str, keys: Iterable[str], secret: dict[str, str]) -> None:
        self._iscsiadm([*record, "-o", "update", "-n", method, "-v", "CHAP"])
        for key in keys:
            if secret.get(key):
                self._iscsiadm([*record, "-o", "update", "-n", key, "-v", secret[key]])

    def clone_iface(self, disk: ISCSIDisk) -> None:
        """Make settings like those of init_iface, with the initiator's name of the disk. Raises OSError."""
        if disk.init_iface == disk.iface:
            raise OSError(f"iscsi: cannot clone iface with same name: {disk.init_iface}")
        params = parse_iscsiadm_show(self._iscsiadm(["-m", "iface", "-I", disk.init_iface, "-o", "show"]))
        params["iface.initiatorname"] = disk.initiator_name
        try:
            self._iscsiadm(["-m", "iface", "-I", disk.iface, "-o", "new"], _SESSION_EXISTS)
            for key in sorted(params):
                self._iscsiadm(["-m", "iface", "-I", disk.iface, "-o", "update", "-n", key, "-v", params[key]])
        except OSError as err:
            # They stay, as in _log_in_to_all; Go deletes them.
            raise OSError(
                f"iscsi: failed to update iface records: {err}. iface({disk.init_iface}) will be used"
            ) from err

    def persist_iscsi(self, disk: ISCSIDisk, volume_mode: str) -> None:
        """Write down how to log out again, in the disk's directory, unless the disk is mounted over it."""
        if volume_mode == v1.PERSISTENT_VOLUME_BLOCK:
            directory = self.make_global_vdpd_name(disk)
        else:
            directory = self.make_global_pd_name(disk)
        is_of_go = os.path.basename(os.path.dirname(directory)) != f"iface-{disk.iface}"
        # After a start of the node there is no session of Go's, and what Go has written down ends none of ours.
        if is_of_go and self._has_session(disk):
            klog.v(4).info_s("Skipping persistISCSI, Go has written down how it logged in", path=directory)
            return
        filesystem.mkdir_all(directory, 0o750)
        if not self._plugin.host.get_mounter().is_likely_not_mount_point(directory):
            klog.v(4).info_s("Skipping persistISCSI, the volume is already mounted", path=directory)
            return
        persist_iscsi_file(disk, directory)

    def _has_session(self, disk: ISCSIDisk) -> bool:
        """Whether the node is logged in to the target over one of the disk's portals. Raises OSError."""
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
                # DIVERGES (safer): a disk that is still mounted after it was unmounted is an error, and is unmounted
                # again later.
                # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachDisk: the file iscsi.json is then read from the
                # disk itself.
                # Why: a pod may have written that file, and have the kubelet log out of another target; two volumes
                # that name one portal with and without its port may mount a disk twice.
                # Test: iscsi_test.py:test_file_of_a_disk_that_is_still_mounted_is_not_taken_for_its_settings
                raise OSError(f"{mount_path} is still mounted after it was unmounted")
        self._detach(mount_path, self._try_to_delete_devices)

    def detach_block_iscsi_disk(self, map_path: str) -> None:
        # Raises when it cannot be told.
        if not filesystem.exists(map_path):
            klog.warning_s("Warning: Unmap skipped because path does not exist", path=map_path)
            return
        # DIVERGES (fault of Go): the target of a block volume is logged out of whether its device is there or not.
        # Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachBlockISCSIDisk: without a device over the first portal,
        # the detachment fails.
        # Why: there is none if another portal had to be used, if that portal has an IPv6 address, or if the target is
        # gone: nobody would ever log out.
        # Test: iscsi_test.py:test_block_volume
        self._detach(map_path)

    def _load(self, path: str) -> ISCSIDisk:
        """The disk of the directory, from its file or, if that is gone or broken, from its name.

        Raises ValueError, and OSError for a file that cannot be read now.

        DIVERGES (safer): the file that tells how to log out is read again later if it cannot be read now, as for want
        of a file descriptor.
        Go: pkg/volume/iscsi/iscsi_util.go, (*ISCSIUtil).DetachDisk: what the name of the directory tells is used then.
        Why: the name tells one portal, and nobody would ever log out over the others.
        Test: iscsi_test.py:test_settings_that_cannot_be_read_now_are_waited_for
        """
        disk = ISCSIDisk(self._plugin, "")
        try:
            load_iscsi(disk, path)
        except (FileNotFoundError, ValueError) as err:
            klog.v(4).info_s("iscsi: no settings to log out with, going by the directory's name", path=path, err=err)
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

        DIVERGES (fault of Go): the directory of the disk is removed while the target is locked.
        Go: pkg/volume/iscsi/attacher.go, (*iscsiDetacher).UnmountDevice: it is removed when the target is no longer
        locked.
        Why: of two disks that are detached at the same time, each finds the directory of the other one, and nobody ever
        logs out.
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
        """Have the kernel forget the disk, unless another volume has it too.

        DIVERGES (fault of Go): the kernel keeps a disk that another volume has too.
        Go: pkg/volume/iscsi/iscsi_util.go, deleteDevices: the kernel forgets the disk in any case.
        Why: two volumes that name different portals may have the same disk, and what one has mounted would be gone when
        the other one is detached.
        Test: iscsi_test.py:test_disk_of_two_volumes_stays_until_both_are_detached
        """
        try:
            if get_vol_count(self._plugin.host, disk.iqn, disk.lun) <= 1:
                self.delete_devices(disk)
        except OSError as err:
            klog.warning_s("iscsi detach disk: failed to delete devices", err=err)

    def delete_devices(self, disk: ISCSIDisk) -> None:
        """Have the kernel forget the disk. Raises OSError."""
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
        """Log out of all portals, and remove what was set for them. Raises OSError."""
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
        """Whether there are settings of that name: iscsiadm fails with any command that names others. Raises OSError.

        They are deleted before the disk's directory is removed, which may fail, and is then tried again.
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
        """What it says. Raises OSError with that; never logs the arguments, which may hold passwords."""
        try:
            return self._plugin.exec.run(["iscsiadm", *arguments]).decode(errors="replace")
        except utilexec.CodeExitError as err:
            output = err.output.decode(errors="replace")
            if err.code in ignored_exit_codes:
                klog.v(4).info_s("ignored iscsiadm exit code", code=err.code)
                return output
            raise OSError(f"{output.strip()} ({err})") from err
        except FileNotFoundError as err:
            # DIVERGES (safer): an error names the package that the node lacks if there is no iscsiadm.
            # Go: pkg/volume/iscsi/iscsi_util.go, execWithLog: the error says only that the executable is not there.
            # Why: whoever has made the volume is told so, and need not know what attaches it.
            # Test: iscsi_test.py:test_node_without_the_tools_says_so
            raise OSError(
                "this node cannot attach iscsi volumes: iscsiadm is not installed (it comes with the package "
                "open-iscsi or iscsi-initiator-utils)",
            ) from err

    def _try(self, arguments: list[str]) -> None:
        """What may fail, and does not matter then."""
        try:
            self._iscsiadm(arguments)
        except OSError as err:
            klog.v(4).info_s("iscsiadm failed", err=err)


def _disk_dir(top: str, iface: str, disk: ISCSIDisk) -> str:
    return os.path.join(top, f"iface-{iface}", f"{disk.portals[0]}-{disk.iqn}-lun-{disk.lun}")


def dirs_of_disk(top: str, disk: ISCSIDisk) -> list[str]:
    """Where the disk may be mounted: in its own directory, or in one that Go's kubelet has left.

    The directory of a disk with iface_of_pods has another name in Go.
    """
    ifaces = [disk.iface, *([disk.iface_of_persistent_volume] if disk.iface == disk.iface_of_pods else [])]
    return [_disk_dir(top, iface, disk) for iface in ifaces]


def _is_named(path: str) -> bool:
    """Whether something stands at the path, by its name alone: what is mounted there may hang. Raises OSError."""
    return os.path.basename(path) in filesystem.names_in(os.path.dirname(path))


def persist_iscsi_file(disk: ISCSIDisk, directory: str) -> None:
    """Replace the file as a whole: for a block volume it is written anew with each pod. Raises OSError."""
    saved = {key: getattr(disk, name) for name, key in _SAVED.items()}
    atomicfile.write(Path(directory, _FILE), json.dumps(saved).encode(), 0o644)


def load_iscsi(disk: ISCSIDisk, directory: str) -> None:
    """Raises OSError, ValueError."""
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
    """The path, a pattern unless the transport is tcp, once something stands there; "" when nothing appears.

    Looks once a second, max_retries times.
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
    """The device mapper's device for the paths, "" when there is none after max_retries seconds."""
    ctx = golang.background()
    for attempt in range(max_retries):
        if attempt:
            ctx.wait(1.0)
        for path in paths:
            if mapped := devices.find_multipath_device_for_device(path):
                return mapped
    return ""


def scan_one_lun(host_number: int, lun: int) -> None:
    """Have the kernel look for one LUN. Raises OSError."""
    Path(f"/sys/class/scsi_host/host{host_number}/scan").write_text(f"0 0 {lun}")
    klog.v(3).info_s("Scanned SCSI host", host=host_number, lun=lun)


def delete_device(name: str) -> None:
    """Raises OSError; gone already is fine."""
    try:
        Path(f"/sys/block/{name}/device/delete").write_text("1")
    except FileNotFoundError:
        return
    klog.v(4).info_s("Deleted block device", device=name)


def extract_transportname(iface_output: str) -> str:
    """ "tcp" for most; "" when it does not tell."""
    match = _TRANSPORT_NAME.search(iface_output)
    if match is None:
        return ""
    return "tcp" if match[1] == "<empty>" else match[1]


def extract_device_and_prefix(path: str) -> tuple[str, str]:
    """The last part of a disk's directory, and all before its LUN. Raises ValueError."""
    _, slash, device = path.rpartition("/")
    prefix, lun, _ = path.rpartition("-lun-")
    if not slash or not lun:
        raise ValueError(f"iscsi detach disk: malformatted mnt path: {path}")
    return device, prefix


def extract_iface(path: str) -> str | None:
    match = _IFACE.fullmatch(path)
    return match[1] if match is not None else None


def extract_portal_and_iqn(device: str) -> tuple[str, str]:
    """Of the last part of a disk's directory. Raises ValueError.

    DIVERGES (fault of Go): a portal ends where the name of a target begins, with "iqn.", "eui." or "naa.".
    Go: pkg/volume/iscsi/iscsi_util.go, extractPortalAndIqn: a portal ends at its first dash, and a name that begins
    with "naa." is an error.
    Why: names of hosts may have dashes; after a restart, nobody would find the mount of such a disk, which is never
    unmounted.
    Test: iscsi_test.py:test_names_of_directories
    """
    portal, *target = _BEFORE_TARGET.split(device, maxsplit=1)
    if not target:
        raise ValueError(f"iscsi detach disk: no portal and iqn in {device}")
    return portal, target[0].rpartition("-lun-")[0]


def parse_device_dir(path: str) -> tuple[str, str, str]:
    """Portal, name and LUN of the disk that a directory is for. Raises ValueError."""
    device, _ = extract_device_and_prefix(path)
    portal, iqn = extract_portal_and_iqn(device)
    lun = device.rpartition("-lun-")[2]
    if not lun.isascii() or not lun.isdigit():
        raise ValueError(f"failed to retrieve lun from {path}")
    return portal, iqn, lun


def remove_duplicate(values: Iterable[str]) -> list[str]:
    return [value for value in dict.fromkeys(values) if value]


def parse_iscsiadm_show(output: str) -> dict[str, str]:
    """The settings that have a value. Raises OSError."""
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
    """Whether more disks than one of the target are in use; yes when in doubt."""
    try:
        return get_vol_count(host, iqn) > 1
    except OSError as err:
        klog.error_s(err, "iscsi: could not determine volumes in use")
        return True


def get_vol_count(host: VolumeHost, iqn: str, lun: str | None = None) -> int:
    """How many directories there are of disks of the target, or of one of them, mounted or mapped. Raises OSError.

    DIVERGES (fault of Go): disks of the same target count, whatever their portals.
    Go: pkg/volume/iscsi/iscsi_util.go, getVolCount: disks count whose first portal is the same and whose target has a
    name that begins alike.
    Why: the session of a disk in use that names the portals in another order would end, and a session that nobody uses
    would stay.
    Test: iscsi_test.py:test_session_stays_while_another_disk_uses_it_over_portals_in_another_order,
    iscsi_test.py:test_disk_of_another_target_keeps_no_session
    """
    directories = (host.get_plugin_dir(_PLUGIN_NAME), host.get_volume_device_plugin_dir(_PLUGIN_NAME))
    disks = (path.rpartition("-lun-") for directory in directories for path in disks_in(directory))
    return sum(target.endswith(f"-{iqn}") and lun in (None, number) for target, _, number in disks)


def disks_in(directory: str) -> Iterator[str]:
    """The directories of all disks. Raises OSError."""
    try:
        with os.scandir(directory) as entries:
            ifaces = [e.path for e in entries if e.is_dir(follow_symlinks=False) and e.name != "volumeDevices"]
    except FileNotFoundError:
        return
    for iface in ifaces:
        yield from (os.path.join(iface, name) for name in os.listdir(iface))
