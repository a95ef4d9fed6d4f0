"""Making, changing and removing cgroups, of version 1 and 2, named for the cgroupfs or the systemd driver.

Go: pkg/kubelet/cm/cgroup_manager_linux.go, cgroup_v1_manager_linux.go, cgroup_v2_manager_linux.go
"""

from __future__ import annotations

import errno
import os
import re
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Protocol

from kubelet import metrics
from kubelet.cm.types import CgroupName, ResourceConfig
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import klog
from pkg.api.core import v1

SYSTEMD = "systemd"
# The v1 hierarchies in which pods get a cgroup of their own, those of them that the node has mounted.
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "systemd")
# Those without which a cgroup counts as missing. A runtime or another kubelet may leave out the rest.
V1_REQUIRED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "systemd")
V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
V2_REQUIRED = frozenset({"cpuset", "cpu", "memory", "pids", "hugetlb"})
# A cgroup is busy until the last of its killed processes has gone: how often, and after how many seconds the first
# time, doubling, it is tried again to remove it.
REMOVE_TRIES = 6
REMOVE_DELAY = 0.01
# A limit that is none, read as a number from a file of version 2.
_NO_LIMIT = -1


class CgroupManager(Protocol):
    """Cgroups by name. All methods raise OSError when the kernel refuses, and are safe from any thread."""

    def name(self, name: CgroupName) -> str:
        """The cgroup's path in the form of the driver in use, as the runtime takes it for a cgroup parent."""
        ...

    def exists(self, name: CgroupName) -> bool: ...

    def create(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def update(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        """What is in force of "cpu" or "memory". Raises ValueError for anything else, and for what makes no sense."""
        ...

    def memory_usage(self, name: CgroupName) -> int:
        """Bytes that count against the limit."""
        ...

    def destroy(self, name: CgroupName) -> None:
        """Remove the cgroup with all below it; no process may be left in them."""
        ...

    def pids(self, name: CgroupName) -> list[int]:
        """Processes in the cgroup and below it; none when it does not exist."""
        ...

    def children(self, name: CgroupName) -> list[CgroupName]:
        """The cgroups right below; none when it does not exist."""
        ...


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


def is_systemd_style_name(name: str) -> bool:
    """Whether a cgroup's path is one of a slice."""
    return name.endswith(".slice")


def parse_systemd_to_cgroup_name(name: str) -> CgroupName:
    """/kubepods.slice/kubepods-podX.slice as kubepods/podX."""
    unit = name.rpartition("/")[2].removesuffix(".slice")
    return CgroupName(tuple(part.replace("_", "-") for part in unit.split("-")))


def parse_cgroup_name(name: str) -> CgroupName:
    """A cgroup's path, in the form of whatever driver.  Go: CgroupName, ParseCgroupfsToCgroupName"""
    if is_systemd_style_name(name):
        return parse_systemd_to_cgroup_name(name)
    return CgroupName(tuple(part for part in name.split("/") if part))


def last_part_of_slice(unit: str) -> str:
    """The last part of the name of a slice, without its suffix, as a component of a CgroupName."""
    return unit.rsplit("-", 1)[-1].replace("_", "-")


class _CgroupfsManager(ABC):
    """What both versions share: names, and a directory per cgroup in one or several hierarchies."""

    def __init__(self, driver: str, hierarchies: list[str]) -> None:
        self._driver = driver
        self._hierarchies = hierarchies

    def name(self, name: CgroupName) -> str:
        return to_systemd(name) if self._driver == SYSTEMD else "/" + "/".join(name)

    def _paths(self, name: CgroupName) -> list[str]:
        return [hierarchy + self.name(name) for hierarchy in self._hierarchies]

    def create(self, name: CgroupName, config: ResourceConfig) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("create").time():
            self._create(name, config)

    @abstractmethod
    def _create(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def update(self, name: CgroupName, config: ResourceConfig) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("update").time():
            self._set(name, config)

    @abstractmethod
    def _set(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def destroy(self, name: CgroupName) -> None:
        with metrics.CGROUP_MANAGER_DURATION.labels("destroy").time():
            self._destroy(name)

    def _destroy(self, name: CgroupName) -> None:
        error: OSError | None = None
        for path in self._paths(name):
            for directory, _, _ in os.walk(path, topdown=False):
                try:
                    _remove(directory)
                except OSError as err:
                    # What stays in one hierarchy is no reason to leave the others.
                    error = error or err
        if error is not None:
            raise error

    def pids(self, name: CgroupName) -> list[int]:
        found: set[int] = set()
        for path in self._paths(name):
            for directory, _, files in os.walk(path):
                if "cgroup.procs" in files:
                    found.update(_processes(directory))
        return sorted(found)

    def children(self, name: CgroupName) -> list[CgroupName]:
        found: set[str] = set()
        for path in self._paths(name):
            if os.path.isdir(path):
                found.update(entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False))
        if self._driver == SYSTEMD:
            slices = (directory.removesuffix(".slice") for directory in found if directory.endswith(".slice"))
            found = {last_part_of_slice(unit) for unit in slices}
        return [CgroupName((*name, part)) for part in sorted(found)]


class CgroupV1Manager(_CgroupfsManager):
    """One hierarchy per controller."""

    def __init__(self, driver: str, root: str = CGROUP_ROOT) -> None:
        mounted = [os.path.join(root, c) for c in V1_CONTROLLERS if os.path.isdir(os.path.join(root, c))]
        # Controllers that are mounted together are links to one directory.
        super().__init__(driver, list(dict.fromkeys(os.path.realpath(path) for path in mounted)))
        self._root = root
        self._required = [os.path.realpath(path) for path in mounted if os.path.basename(path) in V1_REQUIRED]

    def exists(self, name: CgroupName) -> bool:
        return all(os.path.isdir(hierarchy + self.name(name)) for hierarchy in self._required)

    def _create(self, name: CgroupName, config: ResourceConfig) -> None:
        for path in self._paths(name):
            os.makedirs(path, exist_ok=True)
        self._inherit_cpuset(self._controller_path("cpuset", name))
        self._set(name, config)

    def _controller_path(self, controller: str, name: CgroupName) -> str:
        return os.path.realpath(os.path.join(self._root, controller)) + self.name(name)

    def _inherit_cpuset(self, path: str) -> None:
        """A v1 cpuset takes no process until its cpus and memory nodes are set."""
        parent = os.path.dirname(path)
        for file in ("cpuset.cpus", "cpuset.mems"):
            target = Path(path, file)
            if target.exists() and not target.read_text().strip():
                if not Path(parent, file).read_text().strip():
                    self._inherit_cpuset(parent)
                target.write_text(Path(parent, file).read_text())

    def _set(self, name: CgroupName, config: ResourceConfig) -> None:
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
        for controller, file, value in settings:
            path = Path(self._controller_path(controller, name), file)
            if value is not None and path.exists():
                path.write_text(str(value))

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        match resource:
            case v1.RESOURCE_CPU:
                path = self._controller_path("cpu", name)
                return ResourceConfig(
                    cpu_shares=_read_int(path, "cpu.shares"),
                    cpu_quota=_read_int(path, "cpu.cfs_quota_us"),
                    cpu_period=_read_int(path, "cpu.cfs_period_us"),
                )
            case v1.RESOURCE_MEMORY:
                path = self._controller_path("memory", name)
                return ResourceConfig(memory=_read_int(path, "memory.limit_in_bytes"))
        raise ValueError(f"unsupported resource {resource} for cgroup {'/'.join(name)}")

    def memory_usage(self, name: CgroupName) -> int:
        return _read_int(self._controller_path("memory", name), "memory.usage_in_bytes")


class CgroupV2Manager(_CgroupfsManager):
    """One hierarchy for all controllers."""

    def __init__(self, driver: str, root: str = CGROUP_ROOT) -> None:
        super().__init__(driver, [root])
        self._root = root

    def exists(self, name: CgroupName) -> bool:
        needed = V2_REQUIRED & _controllers(self._root)
        try:
            return needed <= _controllers(self._paths(name)[0])
        except FileNotFoundError:
            return False

    def _create(self, name: CgroupName, config: ResourceConfig) -> None:
        path = self._paths(name)[0]
        directory = self._root
        for component in os.path.relpath(path, self._root).split(os.sep):
            self._enable_controllers(directory)
            directory = os.path.join(directory, component)
            os.makedirs(directory, exist_ok=True)
        self._enable_controllers(path)
        self._set(name, config)

    def _enable_controllers(self, path: str) -> None:
        available = _controllers(path)
        wanted = " ".join(f"+{controller}" for controller in V2_CONTROLLERS if controller in available)
        try:
            Path(path, "cgroup.subtree_control").write_text(wanted)
        except OSError as err:
            klog.v(2).info_s("Cannot enable cgroup controllers", path=path, controllers=wanted, err=err)

    def _set(self, name: CgroupName, config: ResourceConfig) -> None:
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

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        path = self._paths(name)[0]
        match resource:
            case v1.RESOURCE_CPU:
                content = Path(path, "cpu.max").read_text()
                try:
                    quota, period = content.split()
                    cpu_quota, cpu_period = -1 if quota == "max" else int(quota), int(period)
                except ValueError as err:
                    raise ValueError(
                        f"failed to correctly parse content of cpu.max file ({content!r}) for cgroup {path}"
                    ) from err
                shares = cpu_weight_to_cpu_shares(_read_int(path, "cpu.weight"))
                return ResourceConfig(cpu_shares=shares, cpu_quota=cpu_quota, cpu_period=cpu_period)
            case v1.RESOURCE_MEMORY:
                return ResourceConfig(memory=_read_int(path, "memory.max"))
        raise ValueError(f"unsupported resource {resource} for cgroup {'/'.join(name)}")

    def memory_usage(self, name: CgroupName) -> int:
        return _read_int(self._paths(name)[0], "memory.current")


def _read_int(directory: str, file: str) -> int:
    """A setting that is one number; no limit is −1. Raises OSError, ValueError."""
    text = Path(directory, file).read_text().strip()
    return _NO_LIMIT if text == "max" else int(text)


def _controllers(path: str) -> set[str]:
    """The controllers in force in a v2 cgroup."""
    return set(Path(path, "cgroup.controllers").read_text().split())


def _processes(directory: str) -> list[int]:
    try:
        return [int(pid) for pid in Path(directory, "cgroup.procs").read_text().split()]
    except OSError as err:
        # It went while we looked, or may not be asked: its threads are then listed further up.
        klog.v(4).info_s("Cgroup manager encountered error getting procs for cgroup path", path=directory, err=err)
        return []


def _remove(directory: str) -> None:
    """Remove one cgroup, waiting a moment for processes that are about to go."""
    delay = REMOVE_DELAY
    for attempt in range(1, REMOVE_TRIES + 1):
        try:
            os.rmdir(directory)
            return
        except FileNotFoundError:
            return
        except OSError as err:
            if err.errno != errno.EBUSY or attempt == REMOVE_TRIES:
                raise
        time.sleep(delay)
        delay *= 2


def cpu_shares_to_weight(shares: int) -> int:
    """From v1's range 2…262144 to v2's 1…10000."""
    return 1 + ((max(shares, 2) - 2) * 9999) // 262142


def same_cpu_shares(a: int | None, b: int | None) -> bool:
    """Whether the kernel takes them for the same: in cgroups of version 2, one weight stands for many shares."""
    if a is None or b is None or not is_cgroup2_unified_mode():
        return a == b
    return cpu_shares_to_weight(a) == cpu_shares_to_weight(b)


def cpu_weight_to_cpu_shares(weight: int) -> int:
    """From v2's range 1…10000 to v1's 2…262144.

    DIVERGES: rounded up, so that the same weight comes out again; Go's is one less.
    """
    return -(-(weight - 1) * 262142 // 9999) + 2


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
