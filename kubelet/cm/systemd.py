"""Define slices, the cgroups that systemd creates and removes at a request over D-Bus.

systemd may remove a cgroup that it does not know when it is reloaded next.

Go: github.com/opencontainers/cgroups/systemd
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

# A property consists of its name, and its value with the D-Bus signature.
Property = tuple[str, tuple[str, Any]]

INFINITY = (1 << 64) - 1
RUNNING = "/run/systemd/system"
_DEFAULT_QUOTA_PERIOD = 100_000  # µs
# _MEMORY_PROPERTIES holds systemd's names for limits of cgroup version 2, by the file that holds the limit.
_MEMORY_PROPERTIES = {
    "memory.high": "MemoryHigh",
    "memory.low": "MemoryLow",
    "memory.min": "MemoryMin",
    "memory.max": "MemoryMax",
    "memory.swap.max": "MemorySwapMax",
}


class SystemdError(OSError):
    """Signal that systemd did not execute a request.

    `name` is the name of the D-Bus error, or "" if there was none.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Disconnected(SystemdError):
    """Signal that the connection to the bus is closed. systemd may have executed the request."""


class JobTimeoutError(SystemdError):
    """Signal that a job of systemd takes too long."""


class Manager(Protocol):
    """Define the requests to systemd. All methods raise SystemdError and are thread-safe."""

    def version(self) -> int:
        """Return systemd's version, such as 252, or -1 if it is unknown."""
        ...

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        """Create a slice and return when it exists. An existing slice stays as it is."""
        ...

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None: ...

    def stop_unit(self, unit: str) -> None:
        """Stop a unit and return when it has stopped, or when systemd refuses. Raise JobTimeoutError only."""
        ...


def is_running_systemd(path: str = RUNNING) -> bool:
    """Report whether systemd runs this machine."""
    return os.path.isdir(path) and not os.path.islink(path)


def slice_properties(unit: str, parent: str, cgroup_version: int) -> list[Property]:
    """Return the properties of a new slice below another one, with all accounting turned on."""
    io = "IOAccounting" if cgroup_version == 2 else "BlockIOAccounting"
    return [
        ("Description", ("s", f"libcontainer container {unit}")),
        ("Wants", ("as", [parent])),
        *((name, ("b", True)) for name in ("MemoryAccounting", "CPUAccounting", io, "TasksAccounting")),
        ("DefaultDependencies", ("b", False)),
    ]


def unit_and_parent(path: str) -> tuple[str, str]:
    """Return the names of a slice and of its parent for a path such as /a.slice/a-b.slice."""
    above, _, unit = path.rpartition("/")
    return unit or "-.slice", above.rpartition("/")[2] or "-.slice"


def round_quota(quota: int, period: int) -> int:
    """Return the quota, in µs, as systemd rounds it: up to a whole percent of a core."""
    if quota <= 0:
        return quota
    period = period or _DEFAULT_QUOTA_PERIOD
    return _per_second(quota, period) * period // 1_000_000


def _per_second(quota: int, period: int) -> int:
    return -(-(quota * 1_000_000 // period) // 10_000) * 10_000


def common_properties(
    quota: int | None, period: int | None, pids_limit: int | None, cpuset: str, version: Callable[[], int]
) -> list[Property]:
    """Return the properties that both cgroup versions have."""
    found: list[Property] = []
    if period and version() >= 242:
        found.append(("CPUQuotaPeriodUSec", ("t", period)))
    if quota or period:
        limited = quota is not None and quota > 0
        per_second = _per_second(quota or 0, period or _DEFAULT_QUOTA_PERIOD) if limited else INFINITY
        # A pod may request any number of cores, so the product can exceed the D-Bus type.
        per_second = min(per_second, INFINITY)
        found.append(("CPUQuotaPerSecUSec", ("t", per_second)))
    if pids_limit is not None:
        # systemd does not accept 0.
        found.append(("TasksMax", ("t", INFINITY if pids_limit < 0 else max(pids_limit, 1))))
    if cpuset and version() >= 244:
        found.append(("AllowedCPUs", ("ay", cpus_to_bytes(cpuset))))
    return found


def unified_properties(unified: Mapping[str, str]) -> list[Property]:
    """Return the properties for settings that are named by files of version 2.

    Settings that systemd does not know are left out. Raise ValueError.
    """
    found: list[Property] = []
    for file, text in unified.items():
        if file in _MEMORY_PROPERTIES:
            found.append((_MEMORY_PROPERTIES[file], ("t", INFINITY if text == "max" else int(text))))
    return found


def cpus_to_bytes(cpus: str) -> bytes:
    """Return a bit for each core, core 0 first: the bytes 03 01 for "0-1,8".

    Go: RangeToBits
    """
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes(max(1, (mask.bit_length() + 7) // 8), "little")
