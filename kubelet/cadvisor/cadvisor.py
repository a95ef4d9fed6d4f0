"""Machine facts from /proc and /sys.

Go: pkg/kubelet/cadvisor/cadvisor_linux.go
"""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from kubelet.cadvisor.info.v1 import HugePagesInfo, MachineInfo, VersionInfo
from kubelet.cadvisor.info.v2 import FsInfo

_MEMINFO = re.compile(r"^(MemTotal|SwapTotal):\s+(\d+) kB$", re.MULTILINE)
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUID_FILES = (
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    "/etc/machine-id",
)
_PRETTY_NAME = re.compile(r"""^PRETTY_NAME=["']?(.*?)["']?$""", re.MULTILINE)


class Cadvisor:
    """Reads the machine below the given root, which tests may set; once, for every admission of a pod asks.

    root_path is the kubelet's root directory.
    """

    def __init__(self, root: str = "/", root_path: str = "/") -> None:
        self._root = Path(root)
        self._root_path = root_path

    def machine_info(self) -> MachineInfo:
        return self._machine_info

    def version_info(self) -> VersionInfo:
        return self._version_info

    def root_fs_info(self) -> FsInfo:
        return self.get_dir_fs_info(self._root_path)

    def get_dir_fs_info(self, path: str) -> FsInfo:
        disk = os.statvfs(path)
        return FsInfo(
            timestamp=datetime.now(UTC),
            capacity=disk.f_blocks * disk.f_frsize,
            available=disk.f_bavail * disk.f_frsize,
            usage=(disk.f_blocks - disk.f_bfree) * disk.f_frsize,
            inodes=disk.f_files,
            inodes_free=disk.f_ffree,
        )

    @cached_property
    def _version_info(self) -> VersionInfo:
        return VersionInfo(
            kernel_version=self._text("proc/sys/kernel/osrelease").strip(), container_os_version=self._os_image()
        )

    def _os_image(self) -> str:
        """What the system calls itself; Go's cAdvisor says "Linux" for one that has no name."""
        match = _PRETTY_NAME.search(self._first_of(("/etc/os-release", "/usr/lib/os-release")))
        return match[1] if match else "Linux"

    @cached_property
    def _machine_info(self) -> MachineInfo:
        memory = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(self._text("proc/meminfo"))}
        return MachineInfo(
            num_cores=len(os.sched_getaffinity(0)),
            memory_capacity=memory["MemTotal"],
            swap_capacity=memory.get("SwapTotal", 0),
            machine_id=self._first_of(_MACHINE_ID_FILES),
            system_uuid=self._first_of(_SYSTEM_UUID_FILES).rstrip("\0"),
            boot_id=self._first_of(("/proc/sys/kernel/random/boot_id",)),
            huge_pages=self._huge_pages(),
        )

    def _huge_pages(self) -> tuple[HugePagesInfo, ...]:
        """In the order of their names, as Go lists a directory."""
        directory = self._root / "sys/kernel/mm/hugepages"
        return tuple(
            HugePagesInfo(
                page_size=int(entry.name.removeprefix("hugepages-").removesuffix("kB")),
                num_pages=int((entry / "nr_hugepages").read_text()),
            )
            for entry in sorted(directory.glob("hugepages-*kB"))
        )

    def _first_of(self, paths: tuple[str, ...]) -> str:
        """The first of the files that can be read, without its newline; "" when none can."""
        for path in paths:
            try:
                return self._text(path.lstrip("/")).strip()
            except OSError:
                continue
        return ""

    def _text(self, path: str) -> str:
        return (self._root / path).read_text()
