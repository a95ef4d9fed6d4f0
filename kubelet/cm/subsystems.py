"""Find the cgroup hierarchies that the node has mounted, and check whether they are sufficient.

Go: pkg/kubelet/cm/helpers_linux.go (GetCgroupSubsystems), container_manager_linux.go (validateSystemRequirements)
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from kubelet.cm import cgroup_v2_manager
from kubelet.util import CGROUP_ROOT, is_cgroup2_unified_mode
from pkg import klog, mount_utils

MOUNT_INFO = "/proc/self/mountinfo"
# The kubelet cannot limit pods without these controllers.
_REQUIRED_V1 = frozenset({"cpu", "cpuacct", "cpuset", "memory"})
_REQUIRED_V2 = frozenset({"cpu", "memory"})
_NAMED = "name="
# UNIFIED is the mount's name for version 2 where it is mounted beside version 1. It then has few controllers or none.
UNIFIED = "unified"


@dataclass(slots=True)
class CgroupSubsystems:
    """Record where each controller of version 1 is mounted, and version 2 if it is mounted beside them."""

    mount_points: dict[str, str] = field(default_factory=dict)
    # `read_only` holds the mount points that are read-only.
    read_only: set[str] = field(default_factory=set)


def get_cgroup_subsystems(root: str = CGROUP_ROOT, mount_info: str = MOUNT_INFO) -> CgroupSubsystems:
    """Return the mounts at or below `root`.

    Of several mounts of a controller, the one with the shortest path counts, so that the choice is always the same
    (upstream issue 95488).
    """
    found = CgroupSubsystems()
    for info in mount_utils.parse_mount_info(mount_info):
        within = info.mount_point == root or info.mount_point.startswith(root + "/")
        if not within or info.fs_type not in ("cgroup", "cgroup2"):
            continue
        if "ro" in info.mount_options:
            found.read_only.add(info.mount_point)
        if info.fs_type == "cgroup2":
            if info.mount_point == f"{root}/{UNIFIED}":
                found.mount_points[UNIFIED] = info.mount_point
            continue
        for option in info.super_options:
            controller = option.removeprefix(_NAMED)
            known = found.mount_points.get(controller)
            if known is None or len(info.mount_point) < len(known):
                found.mount_points[controller] = info.mount_point
    return found


def validate_system_requirements(subsystems: CgroupSubsystems, root: str = CGROUP_ROOT) -> Exception | None:
    """Return an error for an optional feature that is missing, or None.

    Raise ValueError if pods cannot have cgroups.
    """
    if is_cgroup2_unified_mode(root):
        _validate_v2(root, subsystems)
        return None
    if missing := _REQUIRED_V1 - subsystems.mount_points.keys():
        # The directory alone proves nothing: an empty one may be where a hierarchy should be mounted.
        raise ValueError(f"system validation failed - Following Cgroup subsystem not mounted: {_listed(missing)}")
    used = {point for name, point in subsystems.mount_points.items() if name in _REQUIRED_V1 | {"pids", "hugetlb"}}
    _refuse_read_only(used & subsystems.read_only)
    _tell_missing({"pids", "hugetlb"} - subsystems.mount_points.keys())
    cpu = subsystems.mount_points["cpu"]
    if all(os.path.exists(os.path.join(cpu, file)) for file in ("cpu.cfs_period_us", "cpu.cfs_quota_us")):
        return None
    return ValueError("CPU hardcapping unsupported")


def _validate_v2(root: str, subsystems: CgroupSubsystems) -> None:
    """Raise ValueError if pods cannot be limited.

    DIVERGES (safer): the kubelet does not start if cgroup version 2 lacks the cpu or the memory controller.
    Go: pkg/kubelet/cm/container_manager_linux.go, validateSystemRequirements: it checks no controllers of version 2,
    and the kubelet starts.
    Why: the limits of pods would silently not be enforced.
    Test: container_manager_test.py:test_v2_without_memory_is_refused
    """
    controllers = cgroup_v2_manager.read_unified_controllers(root)
    if missing := _REQUIRED_V2 - controllers:
        raise ValueError(
            f"system validation failed - cgroup controllers not available in {root}/cgroup.controllers: "
            f"{_listed(missing)}; they may be disabled on the kernel's command line, or bound to cgroup v1 hierarchies"
        )
    _refuse_read_only({root} & subsystems.read_only)
    _tell_missing(cgroup_v2_manager.REQUIRED - controllers)


def _refuse_read_only(mount_points: set[str]) -> None:
    if mount_points:
        raise ValueError(
            f"system validation failed - cgroup hierarchies are mounted read-only: {_listed(mount_points)}; the "
            "kubelet creates a cgroup for each pod there, unless cgroupsPerQOS is false"
        )


def _tell_missing(controllers: set[str] | frozenset[str]) -> None:
    """Log the missing controllers. Pods run without them, but their limits of these resources have no effect."""
    # Many machines have no huge pages, and most pods do not use them.
    if missing := controllers - {"hugetlb"}:
        klog.warning_s("Cgroup controllers are missing, their limits are not enforced", controllers=_listed(missing))


def _listed(names: set[str] | frozenset[str]) -> str:
    return f"[{' '.join(sorted(names))}]"
