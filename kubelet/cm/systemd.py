"""Slices: cgroups that systemd makes and removes, when it is asked to over D-Bus.

A cgroup that systemd does not know of is one that it may take away at its next reload.

Go: github.com/opencontainers/cgroups/systemd
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

# A property's name, and its value with the D-Bus signature.
Property = tuple[str, tuple[str, Any]]

INFINITY = (1 << 64) - 1
RUNNING = "/run/systemd/system"
_DEFAULT_QUOTA_PERIOD = 100_000  # µs
# What systemd calls a limit of version 2, by the file that holds it.
_MEMORY_PROPERTIES = {
    "memory.high": "MemoryHigh",
    "memory.low": "MemoryLow",
    "memory.min": "MemoryMin",
    "memory.max": "MemoryMax",
    "memory.swap.max": "MemorySwapMax",
}


class SystemdError(OSError):
    """systemd did not do what was asked; name is that of the D-Bus error, if there was one."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Disconnected(SystemdError):
    """The connection to the bus is closed. What was asked may have been done."""


class JobTimeoutError(SystemdError):
    """A job of systemd takes too long."""


class Manager(Protocol):
    """What is asked of systemd. All methods raise SystemdError, and are safe from any thread."""

    def version(self) -> int:
        """As in 252; -1 when it does not tell."""
        ...

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        """Return when the slice is there; one that was there already is left as it is."""
        ...

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None: ...

    def stop_unit(self, unit: str) -> None:
        """Return when the unit has stopped, or when systemd refuses to stop it. Raises JobTimeoutError alone."""
        ...


def is_running_systemd(path: str = RUNNING) -> bool:
    """Whether systemd runs this machine."""
    return os.path.isdir(path) and not os.path.islink(path)


def slice_properties(unit: str, parent: str, cgroup_version: int) -> list[Property]:
    """How a slice is made below another: with all of its use counted from the beginning."""
    io = "IOAccounting" if cgroup_version == 2 else "BlockIOAccounting"
    return [
        ("Description", ("s", f"libcontainer container {unit}")),
        ("Wants", ("as", [parent])),
        *((name, ("b", True)) for name in ("MemoryAccounting", "CPUAccounting", io, "TasksAccounting")),
        ("DefaultDependencies", ("b", False)),
    ]


def unit_and_parent(path: str) -> tuple[str, str]:
    """The names of a slice and of that above it, from the slice's path as in /a.slice/a-b.slice."""
    above, _, unit = path.rpartition("/")
    return unit or "-.slice", above.rpartition("/")[2] or "-.slice"


def round_quota(quota: int, period: int) -> int:
    """The quota in µs that systemd makes of it, which knows whole percents of a core: never less."""
    if quota <= 0:
        return quota
    period = period or _DEFAULT_QUOTA_PERIOD
    return _per_second(quota, period) * period // 1_000_000


def _per_second(quota: int, period: int) -> int:
    return -(-(quota * 1_000_000 // period) // 10_000) * 10_000


def common_properties(
    quota: int | None, period: int | None, pids_limit: int | None, cpuset: str, version: Callable[[], int]
) -> list[Property]:
    """Properties that both versions of cgroups have."""
    found: list[Property] = []
    if period and version() >= 242:
        found.append(("CPUQuotaPeriodUSec", ("t", period)))
    if quota or period:
        limited = quota is not None and quota > 0
        per_second = _per_second(quota or 0, period or _DEFAULT_QUOTA_PERIOD) if limited else INFINITY
        # A pod may ask for any number of cores.
        per_second = min(per_second, INFINITY)
        found.append(("CPUQuotaPerSecUSec", ("t", per_second)))
    if pids_limit is not None:
        # systemd takes no 0.
        found.append(("TasksMax", ("t", INFINITY if pids_limit < 0 else max(pids_limit, 1))))
    if cpuset and version() >= 244:
        found.append(("AllowedCPUs", ("ay", cpus_to_bytes(cpuset))))
    return found


def unified_properties(unified: Mapping[str, str]) -> list[Property]:
    """Of what is set by the names of files of version 2, that which systemd knows. Raises ValueError."""
    found: list[Property] = []
    for file, text in unified.items():
        if file in _MEMORY_PROPERTIES:
            found.append((_MEMORY_PROPERTIES[file], ("t", INFINITY if text == "max" else int(text))))
    return found


def cpus_to_bytes(cpus: str) -> bytes:
    """As in 0-1,8 to the bytes \\x03\\x01: a bit per core, that of core 0 first. Go: RangeToBits"""
    mask = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        for cpu in range(int(first), int(last or first) + 1):
            mask |= 1 << cpu
    return mask.to_bytes(max(1, (mask.bit_length() + 7) // 8), "little")
