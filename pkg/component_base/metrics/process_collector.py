"""Collect the kernel's data about this process.

Go: github.com/prometheus/client_golang/prometheus/process_collector.go
"""

from __future__ import annotations

import resource
from collections.abc import Iterable
from pathlib import Path

import prometheus_client
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from pkg.util import procfs

_NETSTAT = Path("/proc/self/net/netstat")


class ProcessCollector(prometheus_client.ProcessCollector):
    """Extend the client library's collector with the metrics that only upstream's collector has."""

    def __init__(self) -> None:
        super().__init__(registry=None)

    def collect(self) -> Iterable[Metric]:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        yield from super().collect()
        yield GaugeMetricFamily(
            "process_virtual_memory_max_bytes",
            "Maximum virtual memory of the process in bytes.",
            # Upstream shows the kernel's value for "no limit" as a number.
            value=2**64 - 1 if limit == resource.RLIM_INFINITY else limit,
        )
        yield from _network()


def _network() -> Iterable[Metric]:
    try:
        lines = procfs.lines(_NETSTAT)
    except OSError:
        return
    rows = [line.split()[1:] for line in lines if line.startswith("IpExt: ")]
    if len(rows) != 2:
        return
    values = dict(zip(rows[0], map(float, rows[1]), strict=False))
    yield CounterMetricFamily(
        "process_network_receive_bytes_total",
        "Bytes that the process's network namespace received.",
        value=values.get("InOctets", 0.0),
    )
    yield CounterMetricFamily(
        "process_network_transmit_bytes_total",
        "Bytes that the process's network namespace sent.",
        value=values.get("OutOctets", 0.0),
    )
