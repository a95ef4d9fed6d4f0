"""Probe containers periodically, and notify the sync loop when a result changes.

Go: pkg/kubelet/prober
"""

from kubelet.prober.prober import ProbeType
from kubelet.prober.prober_manager import PROBER_DURATION, PROBER_RESULTS, Manager, ProbeSnapshot

__all__ = ["PROBER_DURATION", "PROBER_RESULTS", "Manager", "ProbeSnapshot", "ProbeType"]
