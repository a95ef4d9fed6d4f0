"""RuntimeClasses: which handler of the container runtime a pod is run by.

Go: pkg/kubelet/runtimeclass
"""

from kubelet.runtimeclass.runtimeclass_manager import Manager

__all__ = ["Manager"]
