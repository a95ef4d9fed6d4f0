"""Making, changing and removing cgroups, of version 1 and 2, named for the cgroupfs or the systemd driver.

Go: pkg/kubelet/cm/cgroup_manager_linux.go, cgroup_v1_manager_linux.go, cgroup_v2_manager_linux.go
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Protocol

from kubelet.cm.types import CgroupName, ResourceConfig
from pkg import klog

CGROUP_ROOT = "/sys/fs/cgroup"
CGROUPFS = "cgroupfs"
SYSTEMD = "systemd"
# The v1 hierarchies in which pods get a cgroup of their own, those of them that the node has mounted.
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "systemd")
V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")


class CgroupManager(Protocol):
    """Cgroups by name. All methods raise OSError when the kernel refuses, and are safe from any thread."""

    def name(self, name: CgroupName) -> str:
        """The cgroup in the form of the driver in use, as the runtime takes it for a cgroup parent."""
        ...

    def exists(self, name: CgroupName) -> bool: ...

    def create(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def update(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def destroy(self, name: CgroupName) -> None:
        """Remove the cgroup with all below it; no process may be left in them."""
        ...

    def pids(self, name: CgroupName) -> list[int]:
        """Processes in the cgroup and below it; none when it does not exist."""
        ...

    def children(self, name: CgroupName) -> list[str]:
        """Directory names of the cgroups right below; none when it does not exist."""
        ...


def is_cgroup2_unified_mode(root: str = CGROUP_ROOT) -> bool:
    """Whether the node has version 2 alone (and not the hybrid, where v1 does the work)."""
    return os.path.exists(os.path.join(root, "cgroup.controllers"))


def new_cgroup_manager(driver: str, root: str = CGROUP_ROOT) -> CgroupManager:
    """The manager for the node's cgroup version and the driver ("cgroupfs" or "systemd")."""
    if is_cgroup2_unified_mode(root):
        return CgroupV2Manager(driver, root)
    return CgroupV1Manager(driver, root)


def to_systemd(name: CgroupName) -> str:
    """kubepods/burstable/podX as kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podX.slice."""
    parts = [part.replace("-", "_") for part in name]
    slices = ["-".join(parts[: i + 1]) + ".slice" for i in range(len(parts))]
    return "/" + "/".join(slices)


class _CgroupfsManager:
    """What both versions share: names, and a directory per cgroup in one or several hierarchies."""

    def __init__(self, driver: str, hierarchies: list[str]) -> None:
        self._driver = driver
        self._hierarchies = hierarchies

    def name(self, name: CgroupName) -> str:
        if self._driver == SYSTEMD:
            return to_systemd(name).rsplit("/", 1)[-1] or "/"
        return "/" + "/".join(name)

    def _paths(self, name: CgroupName) -> list[str]:
        relative = to_systemd(name) if self._driver == SYSTEMD else "/" + "/".join(name)
        return [hierarchy + relative for hierarchy in self._hierarchies]

    def exists(self, name: CgroupName) -> bool:
        return all(os.path.isdir(path) for path in self._paths(name))

    def destroy(self, name: CgroupName) -> None:
        for path in self._paths(name):
            for directory, _, _ in os.walk(path, topdown=False):
                os.rmdir(directory)

    def pids(self, name: CgroupName) -> list[int]:
        found: set[int] = set()
        for path in self._paths(name):
            for directory, _, files in os.walk(path):
                if "cgroup.procs" in files:
                    found.update(int(pid) for pid in Path(directory, "cgroup.procs").read_text().split())
        return sorted(found)

    def children(self, name: CgroupName) -> list[str]:
        found: set[str] = set()
        for path in self._paths(name):
            if os.path.isdir(path):
                found.update(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        return sorted(found)


class CgroupV1Manager(_CgroupfsManager):
    """One hierarchy per controller."""

    def __init__(self, driver: str, root: str = CGROUP_ROOT) -> None:
        mounted = [os.path.join(root, c) for c in V1_CONTROLLERS if os.path.isdir(os.path.join(root, c))]
        # Controllers that are mounted together are links to one directory.
        super().__init__(driver, list(dict.fromkeys(os.path.realpath(path) for path in mounted)))
        self._root = root

    def create(self, name: CgroupName, config: ResourceConfig) -> None:
        for path in self._paths(name):
            os.makedirs(path, exist_ok=True)
            if os.path.basename(path[: -len("/".join(name)) - 1]) == "cpuset":
                self._inherit_cpuset(path)
        self.update(name, config)

    def _inherit_cpuset(self, path: str) -> None:
        """A v1 cpuset takes no process until its cpus and memory nodes are set."""
        parent = os.path.dirname(path)
        for file in ("cpuset.cpus", "cpuset.mems"):
            target = Path(path, file)
            if target.exists() and not target.read_text().strip():
                if not Path(parent, file).read_text().strip():
                    self._inherit_cpuset(parent)
                target.write_text(Path(parent, file).read_text())

    def update(self, name: CgroupName, config: ResourceConfig) -> None:
        settings: list[tuple[str, str, int | None]] = [
            ("cpu", "cpu.shares", config.cpu_shares),
            ("cpu", "cpu.cfs_period_us", config.cpu_period),
            ("cpu", "cpu.cfs_quota_us", config.cpu_quota),
            ("memory", "memory.limit_in_bytes", config.memory),
            ("pids", "pids.max", config.pids_limit),
        ]
        settings += [
            ("hugetlb", f"hugetlb.{page_size_name(size)}.limit_in_bytes", limit)
            for size, limit in config.huge_page_limit.items()
        ]
        relative = to_systemd(name) if self._driver == SYSTEMD else "/" + "/".join(name)
        for controller, file, value in settings:
            path = Path(os.path.realpath(os.path.join(self._root, controller)) + relative, file)
            if value is not None and path.exists():
                path.write_text(str(value))


class CgroupV2Manager(_CgroupfsManager):
    """One hierarchy for all controllers."""

    def __init__(self, driver: str, root: str = CGROUP_ROOT) -> None:
        super().__init__(driver, [root])
        self._root = root

    def create(self, name: CgroupName, config: ResourceConfig) -> None:
        path = self._paths(name)[0]
        os.makedirs(path, exist_ok=True)
        parent = self._root
        for component in os.path.relpath(path, self._root).split(os.sep):
            self._enable_controllers(parent)
            parent = os.path.join(parent, component)
        self._enable_controllers(path)
        self.update(name, config)

    def _enable_controllers(self, path: str) -> None:
        available = Path(path, "cgroup.controllers").read_text().split()
        wanted = " ".join(f"+{controller}" for controller in V2_CONTROLLERS if controller in available)
        try:
            Path(path, "cgroup.subtree_control").write_text(wanted)
        except OSError as err:
            klog.v(2).info_s("Cannot enable cgroup controllers", path=path, controllers=wanted, err=err)

    def update(self, name: CgroupName, config: ResourceConfig) -> None:
        path = self._paths(name)[0]
        settings: dict[str, str] = {}
        if config.cpu_shares is not None:
            settings["cpu.weight"] = str(cpu_shares_to_weight(config.cpu_shares))
        if config.cpu_quota is not None:
            quota = "max" if config.cpu_quota <= 0 else str(config.cpu_quota)
            settings["cpu.max"] = f"{quota} {config.cpu_period}" if config.cpu_period else quota
        if config.memory is not None:
            settings["memory.max"] = "max" if config.memory < 0 else str(config.memory)
        if config.pids_limit is not None:
            settings["pids.max"] = "max" if config.pids_limit <= 0 else str(config.pids_limit)
        for size, limit in config.huge_page_limit.items():
            settings[f"hugetlb.{page_size_name(size)}.max"] = str(limit)
        for file, value in settings.items():
            target = Path(path, file)
            if target.exists():
                target.write_text(value)


def cpu_shares_to_weight(shares: int) -> int:
    """From v1's range 2…262144 to v2's 1…10000."""
    return 1 + ((max(shares, 2) - 2) * 9999) // 262142


def page_size_name(size: int) -> str:
    """2097152 as 2MB, as the files of the hugetlb controller are named."""
    for unit, factor in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def huge_page_sizes(root: str = "/sys/kernel/mm/hugepages") -> list[int]:
    """The huge page sizes the kernel offers, in bytes."""
    if not os.path.isdir(root):
        return []
    names = (re.fullmatch(r"hugepages-(\d+)kB", name) for name in os.listdir(root))
    return sorted(int(match[1]) * 1024 for match in names if match)
