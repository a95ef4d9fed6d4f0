"""Describe allocated CPUs, and what they share.

Go: pkg/kubelet/cm/cpumanager/topology/alignment.go
"""

from __future__ import annotations

from dataclasses import dataclass

from pkg.utils.cpuset import CPUSet


@dataclass(frozen=True, slots=True)
class Alignment:
    """Record what CPUs share.

    `uncore_cache` says whether all of them share one cache, which is also true for no CPU or a single one.
    """

    uncore_cache: bool

    def __str__(self) -> str:
        return f"aligned=<uncore:{str(self.uncore_cache).lower()}>"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Record CPUs that were allocated together."""

    cpus: CPUSet
    aligned: Alignment

    def __str__(self) -> str:
        return f"{self.cpus} {self.aligned}"
