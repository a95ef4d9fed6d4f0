"""Read from /sys which disks have several paths, and which belong to iSCSI sessions.

Go: pkg/volume/util/device_util.go, device_util_linux.go
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from pkg import klog
from pkg.util import procfs

_HOST = re.compile(r"host(\d+)")


class DeviceUtil(Protocol):
    """Define how plugins find disks. Every method is safe from any thread."""

    def find_multipath_device_for_device(self, disk: str) -> str:
        """Return the device-mapper device that the disk is a path of, or "" if there is none."""
        ...

    def find_slave_devices_on_multipath(self, disk: str) -> list[str]:
        """List the disks that are paths of the device-mapper device."""
        ...

    def get_iscsi_portal_host_map_for_target(self, target_iqn: str) -> dict[str, int]:
        """Return the SCSI host numbers by the portals of the target's sessions. Raise OSError."""
        ...

    def find_devices_for_iscsi_lun(self, target_iqn: str, lun: int) -> list[str]:
        """List the names of the LUN's disks, one for each session. Raise OSError."""
        ...


class DeviceHandler:
    """Find disks in /sys. A test sets `root` to a directory of its own."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)

    def find_multipath_device_for_device(self, disk: str) -> str:
        if disk.startswith("/dev/dm-"):
            return disk
        name = self._find_device_for_path(disk)
        blocks = self._root / "sys/block"
        if not name or not blocks.is_dir():
            return ""
        for mapped in sorted(blocks.glob("dm-*")):
            if os.path.lexists(mapped / "slaves" / name):
                return f"/dev/{mapped.name}"
        return ""

    def _find_device_for_path(self, path: str) -> str:
        """Return the disk's name in /dev, or "" if there is none. The path may be a symbolic link."""
        try:
            real = (self._root / path.lstrip("/")).resolve(strict=True)
        except OSError:
            return ""
        return real.name if real.parent == (self._root / "dev").resolve() else ""

    def find_slave_devices_on_multipath(self, disk: str) -> list[str]:
        match disk.split("/"):
            case ["", "dev", name] if name:
                slaves = self._root / "sys/block" / name / "slaves"
                return sorted(f"/dev/{slave.name}" for slave in slaves.iterdir()) if slaves.is_dir() else []
        return []

    def get_iscsi_portal_host_map_for_target(self, target_iqn: str) -> dict[str, int]:
        portals: dict[str, int] = {}
        for host, session in self._sessions():
            try:
                if _read(session / "iscsi_session" / session.name / "targetname") != target_iqn:
                    continue
            except OSError as err:
                klog.info_s("Failed to process session, assuming it is unavailable", session=session.name, err=err)
                continue
            for connection in sorted(session.glob("connection*")):
                try:
                    told = connection / "iscsi_connection" / connection.name
                    for address, port in (("address", "port"), ("persistent_address", "persistent_port")):
                        portals[_join_host_port(_read(told / address), _read(told / port))] = host
                except OSError as err:
                    klog.info_s(
                        "Failed to process connection, assuming it is unavailable", connection=connection.name, err=err
                    )
        return portals

    def find_devices_for_iscsi_lun(self, target_iqn: str, lun: int) -> list[str]:
        devices = []
        for host, session in self._sessions():
            if _read(session / "iscsi_session" / session.name / "targetname") != target_iqn:
                continue
            # With iSCSI, channel and target are always 0.
            blocks = session / f"target{host}:0:0" / f"{host}:0:0:{lun}" / "block"
            if blocks.parent.exists():
                devices += sorted(block.name for block in blocks.iterdir())[:1]
        return devices

    def _sessions(self) -> Iterator[tuple[int, Path]]:
        """Yield the SCSI host number and the directory of each session."""
        hosts = self._root / "sys/class/iscsi_host"
        for directory in sorted(hosts.iterdir()) if hosts.is_dir() else []:
            if match := _HOST.fullmatch(directory.name):
                for session in sorted((directory / "device").glob("session*")):
                    yield int(match[1]), session


def _read(path: Path) -> str:
    return procfs.read(path).strip()


def _join_host_port(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
