"""What the kernel says of this process.

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
    """The client library's collector, and what upstream's has besides."""

    def __init__(self) -> None:
        super().__init__(registry=None)

    def collect(self) -> Iterable[Metric]:
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        yield from super().collect()
        yield GaugeMetricFamily(
            "process_virtual_memory_max_bytes",
            "Most virtual memory that the process may have in bytes.",
            # Upstream takes the kernel's "no limit" for a number.
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
        "Bytes that came to the network namespace of the process.",
        value=values.get("InOctets", 0.0),
    )
    yield CounterMetricFamily(
        "process_network_transmit_bytes_total",
        "Bytes that left the network namespace of the process.",
        value=values.get("OutOctets", 0.0),
    )
