"""Export the statistics of the machine and its containers as Prometheus metrics at /metrics/cadvisor.

Go: github.com/google/cadvisor/metrics
"""

from kubelet.cadvisor.metrics.prometheus import InfoProvider, PrometheusCollector
from kubelet.cadvisor.metrics.prometheus_machine import MachineInfoProvider, PrometheusMachineCollector

__all__ = ["InfoProvider", "MachineInfoProvider", "PrometheusCollector", "PrometheusMachineCollector"]
