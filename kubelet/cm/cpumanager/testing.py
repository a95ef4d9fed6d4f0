"""Machines on which processors are given out in tests, and a CPU manager that gives out what a test wants.

Go: pkg/kubelet/cm/cpumanager/policy_test.go (the topologies), fake_cpu_manager.go
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from kubelet.cm.cpumanager.topology import CPUDetails, CPUInfo, CPUTopology
from pkg.utils import cpuset

_TOPOLOGIES = Path(__file__).with_name("testdata") / "topologies.json"


def topology(name: str) -> CPUTopology:
    """A machine of testdata/topologies.json, which has for each node, socket, core and cache its processors."""
    return _topologies()[name]


@functools.cache
def _topologies() -> dict[str, CPUTopology]:
    return {name: _topology(machine) for name, machine in json.loads(_TOPOLOGIES.read_text()).items()}


def _topology(machine: dict[str, dict[str, str]]) -> CPUTopology:
    numa, socket, core, uncore = (
        {cpu: int(number) for number, cpus in machine.pop(kind).items() for cpu in cpuset.parse(cpus)}
        for kind in ("numa", "socket", "core", "uncore")
    )
    details = {cpu: CPUInfo(numa[cpu], socket[cpu], core[cpu], uncore[cpu]) for cpu in sorted(numa)}
    return CPUTopology(**machine, cpu_details=CPUDetails(details))  # type: ignore[arg-type]
