"""Asks containers, again and again, how they are, and tells the sync loop when an answer changes.

Go: pkg/kubelet/prober
"""

from kubelet.prober.prober import ProbeType
from kubelet.prober.prober_manager import PROBER_DURATION, PROBER_RESULTS, Manager, ProbeSnapshot

__all__ = ["PROBER_DURATION", "PROBER_RESULTS", "Manager", "ProbeSnapshot", "ProbeType"]
