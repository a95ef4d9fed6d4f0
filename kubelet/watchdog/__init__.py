"""Telling systemd that the kubelet is well. Go: pkg/kubelet/watchdog"""

from kubelet.watchdog.watchdog import HealthChecker

__all__ = ["HealthChecker"]
