"""Reads the log files that the container runtime writes.

Go: pkg/kubelet/kuberuntime/logs (today k8s.io/cri-client/pkg/logs)
"""

from kubelet.kuberuntime.logs.logs import LogOptions, read_logs

__all__ = ["LogOptions", "read_logs"]
