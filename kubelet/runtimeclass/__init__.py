"""Find the container runtime's handler for a pod's RuntimeClass.

Go: pkg/kubelet/runtimeclass
"""

from kubelet.runtimeclass.runtimeclass_manager import Manager

__all__ = ["Manager"]
