"""Manage cgroups of version 1, where each controller has a hierarchy.

Go: pkg/kubelet/cm/cgroup_v1_manager_linux.go
"""

from __future__ import annotations

import errno
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
from kubelet.cm.subsystems import UNIFIED, CgroupSubsystems
from kubelet.cm.systemd import Manager, Property
from kubelet.cm.types import CgroupName, InvalidCgroupError, ResourceConfig, quoted
from pkg.api.core import v1

# CONTROLLERS names the hierarchies in which each pod gets a cgroup, as far as the node has mounted them. Runtimes
# create cgroups in all of these, and remove only those of containers.
CONTROLLERS = (
    *("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "devices", "freezer", "blkio", "systemd"),
    *("net_cls", "net_prio", "perf_event", "rdma", "misc", UNIFIED),
)
# A cgroup counts as missing if it lacks one of these hierarchies. A runtime or another kubelet may leave out the
# others.
REQUIRED = ("cpu", "cpuacct", "cpuset", "memory", "pids", "hugetlb", "systemd")


class CgroupV1Manager(CgroupCommon):
    """Create each cgroup in all hierarchies."""

    def __init__(self, driver: str, subsystems: CgroupSubsystems, systemd: Manager | None = None) -> None:
        usable = {
            c: path for c, path in subsystems.mount_points.items() if c in REQUIRED or path not in subsystems.read_only
        }
        self._mount_points = {c: usable[c] for c in CONTROLLERS if c in usable}
        # Controllers that are mounted together share a directory.
        super().__init__(driver, list(dict.fromkeys(self._mount_points.values())), systemd)
        self._cpu_load_balance_disable = False

    def version(self) -> int:
        return 1

    def validate(self, name: CgroupName) -> None:
        needed = {self._mount_points[c] + self.name(name) for c in REQUIRED if c in self._mount_points}
        if missing := sorted(path for path in needed if not Path(path).is_dir()):
            raise InvalidCgroupError(f"cgroup {quoted(name)} has some missing paths: {', '.join(missing)}")

    def set_cpu_load_balance_disable(self) -> None:
        self._cpu_load_balance_disable = True

    def _create_directories(self, name: CgroupName) -> None:
        cpuset = self._path("cpuset", name)
        if self._cpu_load_balance_disable and cpuset is not None:
            # The kernel starts to balance load over the cores as soon as the cpuset has any, so turn that off first.
            os.makedirs(cpuset, exist_ok=True)
            Path(cpuset, "cpuset.sched_load_balance").write_text("0")
        for path in self.paths(name):
            os.makedirs(path, exist_ok=True)
        if cpuset is not None:
            _inherit_cpuset(cpuset)

    def _path(self, controller: str, name: CgroupName) -> str | None:
        mount_point = self._mount_points.get(controller)
        return None if mount_point is None else mount_point + self.name(name)

    def _write(self, name: CgroupName, config: ResourceConfig) -> None:
        """Write the limits in the order in which the Go kubelet writes them."""
        with Settings() as setter:
            write = self._write_file
            setter.attempt(write, "cpuset", name, "cpuset.cpus", config.cpuset or None)
            # A memory limit of 0 means "unset": no process could run in a cgroup with that limit.
            if config.memory:
                setter.attempt(self._write_memory, name, config.memory)
            setter.attempt(write, "cpu", name, "cpu.shares", config.cpu_shares)
            setter.attempt(self._write_cpu_quota, name, config)
            if config.pids_limit is not None:
                setter.attempt(write, "pids", name, "pids.max", pids_max(config.pids_limit))
            for size, limit in config.huge_page_limit.items():
                for kind in ("", ".rsvd"):
                    file = f"hugetlb.{page_size_name(size)}{kind}.limit_in_bytes"
                    setter.attempt(write, "hugetlb", name, file, limit)

    def _write_file(self, controller: str, name: CgroupName, file: str, value: int | str | None) -> None:
        """Write a setting, or do nothing if the value is None or the node lacks the controller."""
        directory = self._path(controller, name)
        if value is not None and directory is not None:
            write_setting(directory, file, str(value))

    def _write_cpu_quota(self, name: CgroupName, config: ResourceConfig) -> None:
        period = config.cpu_period
        try:
            self._write_file("cpu", name, "cpu.cfs_period_us", period)
            period = None
        except OSError as err:
            # The kernel refuses a shorter period that does not fit the old quota. Write the period again after the new
            # quota.
            if err.errno != errno.EINVAL or config.cpu_quota is None:
                raise
        self._write_file("cpu", name, "cpu.cfs_quota_us", config.cpu_quota)
        self._write_file("cpu", name, "cpu.cfs_period_us", period)

    def _write_memory(self, name: CgroupName, limit: int) -> None:
        directory = self._path("memory", name)
        if directory is None:
            return
        if limit == NO_LIMIT:
            # The kernel keeps the memory limit at or below the limit of memory and swap, so lift the latter first.
            self._write_file("memory", name, "memory.memsw.limit_in_bytes", limit)
        try:
            self._write_file("memory", name, "memory.limit_in_bytes", limit)
        except OSError as err:
            if err.errno != errno.EBUSY:
                raise
            usage, peak = (read_int(directory, f"memory.{what}_in_bytes") for what in ("usage", "max_usage"))
            raise OSError(
                errno.EBUSY, f"unable to set memory limit to {limit} (current usage: {usage}, peak usage: {peak})"
            ) from err

    def _properties(self, config: ResourceConfig) -> list[Property]:
        found: list[Property] = []
        if config.memory:
            found.append(("MemoryLimit", ("t", config.memory % (1 << 64))))
        if config.cpu_shares is not None:
            found.append(("CPUShares", ("t", config.cpu_shares)))
        return found

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        path = self._path(resource, name)
        match resource:
            case v1.RESOURCE_CPU if path is not None:
                return ResourceConfig(
                    cpu_shares=read_int(path, "cpu.shares"),
                    cpu_quota=read_int(path, "cpu.cfs_quota_us"),
                    cpu_period=read_int(path, "cpu.cfs_period_us"),
                )
            case v1.RESOURCE_MEMORY if path is not None:
                return ResourceConfig(memory=read_int(path, "memory.limit_in_bytes"))
            case v1.RESOURCE_CPU | v1.RESOURCE_MEMORY:
                raise ValueError(f"failed to build {resource} cgroup fs path for cgroup {list(name)}")
        raise ValueError(f"unsupported resource {resource} for cgroup {list(name)}")

    def memory_usage(self, name: CgroupName) -> int:
        path = self._path("memory", name)
        if path is None:
            raise ValueError("no cgroup v1 mountpoint for memory controller found")
        return read_int(path, "memory.usage_in_bytes")


def _inherit_cpuset(path: str) -> None:
    """Copy the parent's cores and memory nodes. A cpuset accepts no process until both are set."""
    parent = os.path.dirname(path)
    for file in ("cpuset.cpus", "cpuset.mems"):
        target = Path(path, file)
        if target.exists() and not target.read_text().strip():
            if not Path(parent, file).read_text().strip():
                _inherit_cpuset(parent)
            target.write_text(Path(parent, file).read_text())
