"""Define names and settings of cgroups, independent of their version and driver.

Go: pkg/kubelet/cm/types.go
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import NewType

# A CgroupName holds the components of a cgroup's path below the hierarchy's root, without the notation of any driver.
CgroupName = NewType("CgroupName", tuple[str, ...])


class InvalidCgroupError(ValueError):
    """Signal that a cgroup does not exist, or lacks something that the kubelet needs."""


def cgroup_name(base: tuple[str, ...], *components: str) -> CgroupName:
    """Return the name of a cgroup below `base`. Raise ValueError for a component with an underscore or a slash.

    Go: cgroup_manager_linux.go, NewCgroupName
    """
    for component in components:
        if "/" in component or "_" in component:
            raise ValueError(f"invalid character in component [{component!r}] of cgroup name")
    return CgroupName((*base, *components))


def quoted(name: CgroupName) -> str:
    """Return a name as upstream's messages show it, for example ["kubepods" "burstable"]."""
    return f"[{' '.join(map(json.dumps, name))}]"


@dataclass(slots=True)
class ResourceConfig:
    """Describe a cgroup's settings. A setting that is None stays as it is."""

    memory: int | None = None  # The unit is bytes; −1 means no limit.
    cpu_shares: int | None = None
    cpu_quota: int | None = None  # The unit is µs in each period; −1 means no limit.
    cpu_period: int | None = None  # µs
    cpuset: str = ""  # The cores have a form such as 0-3,8; "" leaves the cpuset as it is.
    pids_limit: int | None = None
    # This field maps a page size to a limit, both in bytes.
    huge_page_limit: dict[int, int] = field(default_factory=dict)
    # This field maps a file of version 2 to its content; version 1 ignores it.
    unified: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class QOSContainersInfo:
    """Hold the cgroups that contain the pods of each QoS class."""

    guaranteed: CgroupName
    burstable: CgroupName
    best_effort: CgroupName
