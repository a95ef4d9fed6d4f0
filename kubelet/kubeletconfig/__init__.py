"""Load the kubelet's configuration, and define the fixed names of its root directory.

Go: pkg/kubelet/kubeletconfig
"""

from kubelet.kubeletconfig.defaults import *  # noqa: F403
from kubelet.kubeletconfig.types import ContainerRuntimeOptions

__all__ = ["ContainerRuntimeOptions"]
