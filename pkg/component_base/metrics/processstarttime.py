"""Provide the start time of this process as a metric.

Go: k8s.io/component-base/metrics/processstarttime.go
"""

from __future__ import annotations

import os
from pathlib import Path

from pkg.component_base.metrics import metrics
from pkg.component_base.metrics.registry import KubeRegistry
from pkg.util import procfs


def register_process_start_time(registry: KubeRegistry) -> None:
    """Add the start time to the registry of a page without the other process metrics."""
    gauge = metrics.new_gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
    gauge.set(process_start_time())
    registry.must_register(gauge)


def process_start_time(proc: Path = Path("/proc")) -> float:
    """Return the start time in seconds since 1970; raise OSError without /proc."""
    # The command's name, in parentheses, may contain spaces; starttime is field 22.
    fields = procfs.read(proc / "self/stat").rpartition(")")[2].split()
    ticks = int(fields[19])
    boot = next(float(line.split()[1]) for line in procfs.lines(proc / "stat") if line.startswith("btime "))
    return boot + ticks / os.sysconf("SC_CLK_TCK")
