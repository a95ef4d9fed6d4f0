"""Names and settings of cgroups, whatever their version and driver.

Go: pkg/kubelet/cm/types.go
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NewType

# The components of a cgroup's path below the hierarchy's root, as names without any driver's decoration.
CgroupName = NewType("CgroupName", tuple[str, ...])


class InvalidCgroupError(ValueError):
    """A cgroup is not there, or lacks what a kubelet needs of it."""


def cgroup_name(base: tuple[str, ...], *components: str) -> CgroupName:
    """The cgroup of those components below base. Raises ValueError for a component with an underscore or slash.

    Go: cgroup_manager_linux.go, NewCgroupName
    """
    for component in components:
        if "/" in component or "_" in component:
            raise ValueError(f"invalid character in component [{component!r}] of cgroup name")
    return CgroupName((*base, *components))


def quoted(name: CgroupName) -> str:
    """For messages that people look for: as in ["kubepods" "burstable"]."""
    return f"[{' '.join(map(json.dumps, name))}]"


@dataclass(slots=True)
class ResourceConfig:
    """What a cgroup is limited to; None leaves a setting alone."""

    memory: int | None = None  # bytes, −1 for no limit
    cpu_shares: int | None = None
    cpu_quota: int | None = None  # µs per period, −1 for no limit
    cpu_period: int | None = None  # µs
    cpuset: str = ""  # cores as in 0-3,8; empty leaves them alone
    pids_limit: int | None = None
    huge_page_limit: dict[int, int] = field(default_factory=dict)  # page size in bytes → bytes
    unified: dict[str, str] = field(default_factory=dict)  # files of version 2 → content; nothing of version 1


@dataclass(slots=True, frozen=True)
class QOSContainersInfo:
    """The cgroups under which pods of each QoS class stand."""

    guaranteed: CgroupName
    burstable: CgroupName
    best_effort: CgroupName
