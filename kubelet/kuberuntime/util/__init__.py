"""Answer questions about a pod's sandbox for the runtime manager and other packages.

Go: pkg/kubelet/kuberuntime/util
"""

from kubelet.kuberuntime.util.util import (
    SandboxChange,
    ipc_namespace_for_pod,
    namespaces_for_pod,
    network_namespace_for_pod,
    pid_namespace_for_pod,
    pod_sandbox_changed,
)

__all__ = [
    "SandboxChange",
    "ipc_namespace_for_pod",
    "namespaces_for_pod",
    "network_namespace_for_pod",
    "pid_namespace_for_pod",
    "pod_sandbox_changed",
]
