"""Delaying a shutdown of the system, as systemd-logind offers it.

Go: pkg/kubelet/nodeshutdown/systemd
"""

from kubelet.nodeshutdown.systemd.inhibit import DBusCon, InhibitError, InhibitLock

__all__ = ["DBusCon", "InhibitError", "InhibitLock"]
