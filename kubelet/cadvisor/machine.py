"""Describe the machine: its processors, memory and disks.

Go: github.com/google/cadvisor/machine (info.go, machine.go)
"""

from __future__ import annotations

import os
import re
from functools import cached_property
from pathlib import Path

from kubelet.cadvisor import processes, sysinfo
from kubelet.cadvisor.fs import FileSystems
from kubelet.cadvisor.info import v1 as info
from pkg import klog
from pkg.util import procfs

_MEMINFO = re.compile(r"^(MemTotal|SwapTotal):\s+(\d+) kB$", re.MULTILINE)
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_SYSTEM_UUID_FILES = (
    "/sys/class/dmi/id/product_uuid",
    "/proc/device-tree/system-id",
    "/proc/device-tree/vm,uuid",
    "/etc/machine-id",
)
_PRETTY_NAME = re.compile(r"""^PRETTY_NAME=["']?(.*?)["']?$""", re.MULTILINE)
_CORE_ID = re.compile(r"^core id\s*:\s*(\d+)$", re.MULTILINE)
_PHYSICAL_ID = re.compile(r"^physical id\s*:\s*(\d+)$", re.MULTILINE)
# Block devices with these name prefixes are not disks.
_NO_DISKS = ("loop", "ram", "sr")
_SECTOR = 512


class Machine:
    """Read facts of the machine whose file system is at `root`, which tests set.

    Most values are read once, because every admission of a pod asks for them.
    """

    def __init__(self, root: str, filesystems: FileSystems) -> None:
        self._root = Path(root)
        self._filesystems = filesystems

    @cached_property
    def version_info(self) -> info.VersionInfo:
        """Return the versions. Raise OSError if the kernel's version cannot be read."""
        return info.VersionInfo(
            kernel_version=self._text("proc/sys/kernel/osrelease").strip(), container_os_version=self._os_image()
        )

    def _os_image(self) -> str:
        """Return the operating system's name, or "Linux" if it has none, as cAdvisor does."""
        match = _PRETTY_NAME.search(self._first_of(("/etc/os-release", "/usr/lib/os-release")))
        return match[1] if match else "Linux"

    @cached_property
    def machine_info(self) -> info.MachineInfo:
        """Describe the machine. Raise OSError if /proc cannot be read, or no file descriptor or memory is free."""
        memory, swap = self.memory_and_swap()
        topology, num_cores = self._topology()
        return info.MachineInfo(
            num_cores=num_cores,
            memory_capacity=memory,
            swap_capacity=swap,
            machine_id=self._first_of(_MACHINE_ID_FILES),
            system_uuid=self._first_of(_SYSTEM_UUID_FILES).rstrip("\0"),
            boot_id=self._first_of(("/proc/sys/kernel/random/boot_id",)),
            huge_pages=sysinfo.get_huge_pages_info(self._root / "sys/kernel/mm/hugepages"),
            num_physical_cores=self._count_of(_CORE_ID, "core_id"),
            num_sockets=self._count_of(_PHYSICAL_ID, "physical_package_id"),
            topology=topology,
            memory_by_type=self._memory_by_type(),
        )

    def memory_and_swap(self) -> tuple[int, int]:
        """Return the current bytes of memory and swap, because both can be added or removed while the machine runs.

        Raise OSError. Go: GetMachineMemoryCapacity, GetMachineSwapCapacity
        """
        found = {name: int(kib) * 1024 for name, kib in _MEMINFO.findall(self._text("proc/meminfo"))}
        return found["MemTotal"], found.get("SwapTotal", 0)

    def _topology(self) -> tuple[tuple[info.Node, ...], int]:
        """Return the topology of the processors, and their number.

        Raise OSError if no file descriptor or memory is free, so that the next call tries again; results are cached
        permanently.

        DIVERGES (safer): on a machine whose files cannot be parsed, the kubelet counts the CPUs that it may use itself.
        Go: github.com/google/cadvisor/machine/info.go, Info: the machine has no CPUs.
        Why: no pod could run on the node.
        Test: sysinfo_test.py:test_files_that_make_no_sense
        """
        try:
            return sysinfo.get_nodes_info(self._root)
        except (OSError, ValueError, LookupError) as err:
            if procfs.is_accident(err):
                raise
            klog.error_s(err, "Failed to get topology information")
            return (), len(os.sched_getaffinity(0))

    def _memory_by_type(self) -> dict[str, info.MemoryInfo]:
        """Sum up the memory modules by kind, without those that cannot be parsed.

        Go: GetMachineMemoryByType
        """
        found: dict[str, info.MemoryInfo] = {}
        for dimm in sorted((self._root / "sys/devices/system/edac/mc").glob("mc[0-9]*/dimm[0-9]*")):
            try:
                kind = procfs.read(dimm / "dimm_mem_type").strip()
                size = int((dimm / "size").read_text()) << 20
            except (OSError, ValueError) as err:
                klog.warning_s("Cannot read a memory module", directory=dimm, err=err)
                continue
            before = found.get(kind, info.MemoryInfo())
            found[kind] = info.MemoryInfo(before.capacity + size, before.dimm_count + 1)
        return found

    @cached_property
    def disks(self) -> dict[tuple[int, int], info.DiskInfo]:
        """Return the disks by major and minor number."""
        found = (self._disk(entry) for entry in sorted((self._root / "sys/block").glob("*")))
        return {(disk.major, disk.minor): disk for disk in found if disk is not None}

    def device_name(self, major: int, minor: int) -> str:
        """Return a path such as /dev/sda, or "" for a device that is not a disk and has no file system."""
        if disk := self.disks.get((major, minor)):
            return f"/dev/{disk.name}"
        return self._filesystems.device_name(major, minor)

    @cached_property
    def has_network(self) -> bool:
        """Report whether the machine has a network interface other than the ignored ones."""
        names = (entry.name for entry in (self._root / "sys/class/net").glob("*"))
        return any(not processes.is_ignored_device(name) for name in names)

    def _disk(self, directory: Path) -> info.DiskInfo | None:
        """Return the disk, or None if the device is not a disk or is one of several paths to the same disk."""
        try:
            hidden = (directory / "hidden").exists() and (directory / "hidden").read_text().strip() == "1"
            if hidden or directory.name.startswith(_NO_DISKS):
                return None
            major, _, minor = (directory / "dev").read_text().strip().partition(":")
            size = int((directory / "size").read_text()) * _SECTOR
        except OSError:
            return None  # The disk was unplugged.
        return info.DiskInfo(name=directory.name, major=int(major), minor=int(minor), size=size)

    def _count_of(self, pattern: re.Pattern[str], attribute: str) -> int:
        """Count the distinct values that the processors have in /proc/cpuinfo, or else in /sys."""
        if found := set(pattern.findall(self._first_of(("/proc/cpuinfo",)))):
            return len(found)
        return sysinfo.unique_cpu_properties(self._root, attribute)

    def _first_of(self, paths: tuple[str, ...]) -> str:
        """Return the first of the files that can be read, without its newline, or "" if none can.

        Raise OSError if no file descriptor or memory is free.
        """
        for path in paths:
            try:
                return self._text(path.lstrip("/")).strip()
            except OSError as err:
                if procfs.is_accident(err):
                    raise
        return ""

    def _text(self, path: str) -> str:
        return procfs.read(self._root / path)
