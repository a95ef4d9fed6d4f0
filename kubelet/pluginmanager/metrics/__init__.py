"""Export the metrics of plugins.

Go: pkg/kubelet/pluginmanager/metrics
"""

from kubelet.pluginmanager.metrics.metrics import register

__all__ = ["register"]
