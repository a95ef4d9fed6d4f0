"""What the kernel tells in /sys of disks that come over several paths, or over iSCSI.

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
    """Finds disks. Safe from any thread."""

    def find_multipath_device_for_device(self, disk: str) -> str:
        """The device mapper's device that the disk is a path of; "" for none."""
        ...

    def find_slave_devices_on_multipath(self, disk: str) -> list[str]:
        """The disks that are paths of the device mapper's device."""
        ...

    def get_iscsi_portal_host_map_for_target(self, target_iqn: str) -> dict[str, int]:
        """SCSI host numbers by the portals that are logged in to the target. Raises OSError."""
        ...

    def find_devices_for_iscsi_lun(self, target_iqn: str, lun: int) -> list[str]:
        """Names of the disks of the LUN, one for each session. Raises OSError."""
        ...


class DeviceHandler:
    """The real one. `root` is that of a test's file system."""

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
        """The disk's name in /dev, "" when there is none. Links are followed."""
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
            # Channel and target are always 0 with iSCSI.
            blocks = session / f"target{host}:0:0" / f"{host}:0:0:{lun}" / "block"
            if blocks.parent.exists():
                devices += sorted(block.name for block in blocks.iterdir())[:1]
        return devices

    def _sessions(self) -> Iterator[tuple[int, Path]]:
        """Number of the SCSI host and directory, of each session."""
        hosts = self._root / "sys/class/iscsi_host"
        for directory in sorted(hosts.iterdir()) if hosts.is_dir() else []:
            if match := _HOST.fullmatch(directory.name):
                for session in sorted((directory / "device").glob("session*")):
                    yield int(match[1]), session


def _read(path: Path) -> str:
    return procfs.read(path).strip()


def _join_host_port(host: str, port: str) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
