"""Define the cgroup manager, and choose the one for the node's cgroup version.

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
    """Define operations on cgroups by name.

    All methods raise OSError when the kernel refuses the operation. All are safe to call from any thread.
    """

    def name(self, name: CgroupName) -> str:
        """Return the cgroup's path in the form of the driver in use, as the runtime expects it for a cgroup parent."""
        ...

    def version(self) -> int:
        """Return the cgroup version, 1 or 2."""
        ...

    def cgroup_name(self, name: str) -> CgroupName:
        """Return the name of the cgroup with this path, which has the form of the driver in use."""
        ...

    def paths(self, name: CgroupName) -> list[str]:
        """List the cgroup's directories, one for each hierarchy."""
        ...

    def validate(self, name: CgroupName) -> None:
        """Raise InvalidCgroupError, which names what the cgroup lacks, or OSError if the cgroup cannot be read."""
        ...

    def exists(self, name: CgroupName) -> bool:
        """Report whether the cgroup exists. Raise OSError if the cgroup cannot be read.

        DIVERGES (safer): a cgroup that the kubelet cannot read, because it has no file descriptor left, is not missing.
        Go: pkg/kubelet/cm/cgroup_v2_manager_linux.go, (*cgroupV2impl).Exists: every error means that the cgroup is
        missing.
        Why: the kubelet kills the containers of a pod whose cgroup is missing.
        Test: cgroup_manager_test.py:test_cgroup_is_not_missing_when_no_file_can_be_opened
        """
        ...

    def set_cpu_load_balance_disable(self) -> None:
        """Create cgroups from now on with the kernel's load balancing turned off for their cpusets."""
        ...

    def create(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def update(self, name: CgroupName, config: ResourceConfig) -> None: ...

    def get_cgroup_config(self, name: CgroupName, resource: str) -> ResourceConfig:
        """Return the current settings of "cpu" or "memory".

        Raise ValueError for any other resource, and if the files have unexpected content.
        """
        ...

    def memory_usage(self, name: CgroupName) -> int:
        """Return the memory that counts against the cgroup's limit, in bytes."""
        ...

    def destroy(self, name: CgroupName) -> None:
        """Remove the cgroup and all cgroups below it. The caller must have ended their processes."""
        ...

    def pids(self, name: CgroupName) -> list[int]:
        """List the processes in the cgroup and below it; none if the cgroup does not exist."""
        ...

    def children(self, name: CgroupName) -> list[CgroupName]:
        """List the cgroups directly below this one; none if it does not exist."""
        ...

    def attach(self, name: CgroupName, pid: int) -> None:
        """Move a process into the cgroup in all hierarchies. Create the cgroup if it does not exist."""
        ...


def new_cgroup_manager(
    driver: str, root: str = CGROUP_ROOT, subsystems: CgroupSubsystems | None = None, systemd: Manager | None = None
) -> CgroupManager:
    """Return the manager for the node's cgroup version and the driver, "cgroupfs" or "systemd".

    The caller may leave out the mount points of version 1 if `root` contains nothing else.
    """
    if is_cgroup2_unified_mode(root):
        return CgroupV2Manager(driver, root, systemd)
    if subsystems is None:
        paths = {controller: os.path.join(root, controller) for controller in CONTROLLERS}
        subsystems = CgroupSubsystems({c: os.path.realpath(path) for c, path in paths.items() if os.path.isdir(path)})
    return CgroupV1Manager(driver, subsystems, systemd)


def same_cpu_shares(a: int | None, b: int | None) -> bool:
    """Report whether two values of CPU shares have the same effect.

    In cgroup version 2 one weight stands for several values of CPU shares.
    """
    if a is None or b is None or not is_cgroup2_unified_mode():
        return a == b
    return cpu_shares_to_weight(a) == cpu_shares_to_weight(b)
