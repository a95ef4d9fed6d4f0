"""The manager of cgroups for the version that the node has.

Go: pkg/kubelet/cm/cgroup_manager_linux.go
"""

from __future__ import annotations

import os
from typing import Protocol

from kubelet.cm.cgroup_v1_manager import CONTROLLERS, CgroupV1Manager
from kubelet.cm.cgroup_v2_manager import CgroupV2Manager, cpu_shares_to_weight
from kubelet.cm.subsystems import CgroupSubsystems
from kubelet.cm.systemd import Manager
from kubelet.cm.types import CgroupName, ResourceConfig
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode


class CgroupManager(Protocol):
    """Cgroups by name. All methods raise OSError when the kernel refuses, and are safe from any thread."""

    def name(self, name: CgroupName) -> str:
        """The cgroup's path in the form of the driver in use, as the runtime takes it for a cgroup parent."""
        ...

    def version(self) -> int:
        """1 or 2."""
        ...

    def cgroup_name(self, name: str) -> CgroupName:
        """The cgroup of that path, in the form of the driver in use."""
        ...

    def paths(self, name: CgroupName) -> list[str]:
        """Where the cgroup is in each of the hierarchies."""
        ...

    def validate(self, name: CgroupName) -> None:
        """Raises InvalidCgroupError, which names what the cgroup lacks, and OSError when that cannot be told."""
        ...

    def exists(self, name: CgroupName) -> bool:
        """Raises OSError when that cannot be told.

        DIVERGES (safer): a cgroup that cannot be looked at, for want of a file descriptor, does not count as missing.
        Go: pkg/kubelet/cm/cgroup_v2_manager_linux.go, (*cgroupV2impl).Exists: it does, whatever the error was.
        Why: the containers of a pod whose cgroup is missing are ended.
        Test: cgroup_manager_test.py:test_cgroup_is_not_missing_when_no_file_can_be_opened
        """
        ...

    def set_cpu_load_balance_disable(self) -> None:
        """Make cgroups from now on so that the kernel does not balance load over their cores as a whole."""
        ...

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

    def attach(self, name: CgroupName, pid: int) -> None:
        """Move a process into the cgroup, in all hierarchies, and make the cgroup if need be."""
        ...


def new_cgroup_manager(
    driver: str, root: str = CGROUP_ROOT, subsystems: CgroupSubsystems | None = None, systemd: Manager | None = None
) -> CgroupManager:
    """The manager for the node's cgroup version and the driver ("cgroupfs" or "systemd").

    Where the hierarchies of version 1 are need not be known where root holds nothing but them.
    """
    if is_cgroup2_unified_mode(root):
        return CgroupV2Manager(driver, root, systemd)
    if subsystems is None:
        paths = {controller: os.path.join(root, controller) for controller in CONTROLLERS}
        subsystems = CgroupSubsystems({c: os.path.realpath(path) for c, path in paths.items() if os.path.isdir(path)})
    return CgroupV1Manager(driver, subsystems, systemd)


def same_cpu_shares(a: int | None, b: int | None) -> bool:
    """Whether the kernel takes them for the same: in cgroups of version 2, one weight stands for many shares."""
    if a is None or b is None or not is_cgroup2_unified_mode():
        return a == b
    return cpu_shares_to_weight(a) == cpu_shares_to_weight(b)
