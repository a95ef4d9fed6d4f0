"""Load the configuration from files.

Go: pkg/kubelet/kubeletconfig/configfiles
"""

from kubelet.kubeletconfig.configfiles.configfiles import FsLoader

__all__ = ["FsLoader"]
