"""Processors that were taken, and what they share.

Go: pkg/kubelet/cm/cpumanager/topology/alignment.go
"""

from __future__ import annotations

from dataclasses import dataclass

from pkg.utils.cpuset import CPUSet


@dataclass(frozen=True, slots=True)
class Alignment:
    """uncore_cache: they all share one; so do none, and a single one."""

    uncore_cache: bool

    def __str__(self) -> str:
        return f"aligned=<uncore:{str(self.uncore_cache).lower()}>"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Processors that were taken together."""

    cpus: CPUSet
    aligned: Alignment

    def __str__(self) -> str:
        return f"{self.cpus} {self.aligned}"
