"""Delay a shutdown of the system through systemd-logind.

Go: pkg/kubelet/nodeshutdown/systemd
"""

from kubelet.nodeshutdown.systemd.inhibit import DBusCon, InhibitError, InhibitLock

__all__ = ["DBusCon", "InhibitError", "InhibitLock"]
