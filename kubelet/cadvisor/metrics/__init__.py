"""The machine and its containers as Prometheus sees them, on /metrics/cadvisor.

Go: github.com/google/cadvisor/metrics
"""

from kubelet.cadvisor.metrics.prometheus import InfoProvider, PrometheusCollector
from kubelet.cadvisor.metrics.prometheus_machine import MachineInfoProvider, PrometheusMachineCollector

__all__ = ["InfoProvider", "MachineInfoProvider", "PrometheusCollector", "PrometheusMachineCollector"]
