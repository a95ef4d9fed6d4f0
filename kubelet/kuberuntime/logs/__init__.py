"""Read the log files that the container runtime writes.

Go: k8s.io/cri-client/pkg/logs, pkg/kubelet/kuberuntime/logs in 1.27
"""

from kubelet.kuberuntime.logs.logs import LogOptions, read_logs

__all__ = ["LogOptions", "read_logs"]
