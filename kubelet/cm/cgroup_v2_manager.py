"""Manage cgroups of version 2, where all controllers share one hierarchy.

Go: pkg/kubelet/cm/cgroup_v2_manager_linux.go
"""

from __future__ import annotations

import os
from pathlib import Path

from kubelet.cm.cgroup_common import (
    NO_LIMIT,
    CgroupCommon,
    Settings,
    page_size_name,
    pids_max,
    read_int,
    write_setting,
)
from kubelet.cm.systemd import INFINITY, Manager, Property, unified_properties
from kubelet.cm.types import CgroupName, InvalidCgroupError, ResourceConfig, quoted
from kubelet.util import CGROUP_ROOT
from pkg import klog
from pkg.api.core import v1
from pkg.util import procfs

CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids", "hugetlb")
# A cgroup counts as missing if it lacks one of these controllers and the root cgroup has it.
REQUIRED = frozenset({"cpuset", "cpu", "memory", "pids", "hugetlb"})


class CgroupV2Manager(CgroupCommon):
    """Create cgroups with all controllers of the root cgroup, and enable these for the cgroups below."""

    def __init__(self, driver: str, root: str = CGROUP_ROOT, systemd: Manager | None = None) -> None:
        super().__init__(driver, [root], systemd)
        self._root = root

    def version(self) -> int:
        return 2

    def validate(self, name: CgroupName) -> None:
        try:
            enabled = read_unified_controllers(self._path(name))
        except (FileNotFoundError, NotADirectoryError) as err:
            raise InvalidCgroupError(f"could not read controllers for cgroup {quoted(name)}: {err}") from err
        needed = REQUIRED & read_unified_controllers(self._root)
        if missing := sorted(needed - enabled):
            raise InvalidCgroupError(f"cgroup {quoted(name)} has some missing controllers: {', '.join(missing)}")

    def set_cpu_load_balance_disable(self) -> None:
        """Do nothing: version 2 has cpuset partitions for this purpose, and the kubelet does not use them."""

    def _path(self, name: CgroupName) -> str:
        return self.paths(name)[0]

    def _create_directories(self, name: CgroupName) -> None:
        """Leave the new cgroup's subtree_control empty: the creator of a child cgroup enables controllers there."""
        directory = self._root
        for component in os.path.relpath(self._path(name), self._root).split(os.sep):
            _enable_controllers(directory)
            directory = os.path.join(directory, component)
            os.makedirs(directory, exist_ok=True)

    def _write(self, name: CgroupName, config: ResourceConfig) -> None:
        """Write the limits in the order of the Go kubelet, which matters where one limit depends on another."""
        path = self._path(name)
        settings: dict[str, str] = {}
        if config.pids_limit is not None:
            settings["pids.max"] = pids_max(config.pids_limit)
        # A memory limit of 0 means "unset": the kernel would kill every process in the cgroup.
        if config.memory:
            settings["memory.max"] = "max" if config.memory == NO_LIMIT else str(config.memory)
        if config.cpu_shares is not None:
            settings["cpu.weight"] = str(cpu_shares_to_weight(config.cpu_shares))
        if config.cpu_quota is not None:
            quota = "max" if config.cpu_quota <= 0 else str(config.cpu_quota)
            settings["cpu.max"] = f"{quota} {config.cpu_period}" if config.cpu_period else quota
        if config.cpuset:
            settings["cpuset.cpus"] = config.cpuset
        for size, limit in config.huge_page_limit.items():
            for kind in ("", ".rsvd"):
                settings[f"hugetlb.{page_size_name(size)}{kind}.max"] = str(limit)
        with Settings() as setter:
            for file, value in (settings | config.unified).items():
                setter.attempt(write_setting, path, file, value)

    def _properties(self, config: ResourceConfig) -> list[Property]:
        found: list[Property] = []
        if config.memory:
            found.append(("MemoryMax", ("t", INFINITY if config.memory < 0 else config.memory)))
        if config.cpu_shares is not None:
            found.append(("CPUWeight", ("t", cpu_shares_to_weight(config.cpu_shares))))
        return found + unified_properties(config.unified)

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        path = self._path(name)
        match resource:
            case v1.RESOURCE_CPU:
                content = Path(path, "cpu.max").read_text()
                try:
                    quota, period = content.split()
                    cpu_quota, cpu_period = NO_LIMIT if quota == "max" else int(quota), int(period)
                except ValueError as err:
                    raise ValueError(
                        f"failed to correctly parse content of cpu.max file ({content!r}) for cgroup {path}"
                    ) from err
                shares = cpu_weight_to_cpu_shares(read_int(path, "cpu.weight"))
                return ResourceConfig(cpu_shares=shares, cpu_quota=cpu_quota, cpu_period=cpu_period)
            case v1.RESOURCE_MEMORY:
                return ResourceConfig(memory=read_int(path, "memory.max"))
        raise ValueError(f"unsupported resource {resource} for cgroup {list(name)}")

    def memory_usage(self, name: CgroupName) -> int:
        return read_int(self._path(name), "memory.current")


def read_unified_controllers(path: str) -> set[str]:
    """Return the controllers that are available in a cgroup. Raise OSError."""
    return set(Path(path, "cgroup.controllers").read_text().split())


def _enable_controllers(path: str) -> None:
    """Enable the available controllers for the cgroups below this one.

    The kernel accepts either all controllers of a write or none, so after a refusal each controller is tried alone.
    Raise OSError for a shortage of file descriptors or memory, because that says nothing about the controllers.
    """
    available = read_unified_controllers(path)
    wanted = [f"+{controller}" for controller in CONTROLLERS if controller in available]
    if not _enable(path, " ".join(wanted)):
        for controller in wanted:
            _enable(path, controller)


def _enable(path: str, controllers: str) -> bool:
    """Report whether the kernel accepted the controllers. Raise OSError as _enable_controllers does."""
    try:
        Path(path, "cgroup.subtree_control").write_text(controllers)
    except OSError as err:
        if procfs.is_accident(err):
            raise
        klog.v(2).info_s("Cannot enable cgroup controllers", path=path, controllers=controllers, err=err)
        return False
    return True


def cpu_shares_to_weight(shares: int) -> int:
    """Convert CPU shares, 2 to 262144 in version 1, to a CPU weight, 1 to 10000 in version 2.

    Go: cgroup_manager_linux.go, getCPUWeight
    """
    return min(1 + ((max(shares, 2) - 2) * 9999) // 262142, 10000)


def cpu_weight_to_cpu_shares(weight: int) -> int:
    """Convert a CPU weight, 1 to 10000 in version 2, to CPU shares, 2 to 262144 in version 1.

    DIVERGES (fault of Go): the kubelet rounds the shares up, so that converting them back gives the same weight.
    Go: pkg/kubelet/cm/cgroup_v2_manager_linux.go, cpuWeightToCPUShares: it rounds down, so the weight becomes one less.
    Why: otherwise the weight of a pod's cgroup could not be compared with the weight that the pod's request stands for.
    Test: cgroup_manager_test.py:test_cpu_weight_to_cpu_shares
    """
    return -(-(weight - 1) * 262142 // 9999) + 2
