"""Notify systemd that the kubelet is healthy.

Go: pkg/kubelet/watchdog
"""

from kubelet.watchdog.watchdog import HealthChecker

__all__ = ["HealthChecker"]
