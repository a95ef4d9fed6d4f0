"""Where the kubelet's configuration comes from, and fixed names that go with it.

Go: pkg/kubelet/kubeletconfig
"""

from kubelet.kubeletconfig.defaults import *  # noqa: F403
from kubelet.kubeletconfig.types import ContainerRuntimeOptions

__all__ = ["ContainerRuntimeOptions"]
