"""Define the messages and the service of DRA plugins, version v1.

Go: k8s.io/kubelet/pkg/apis/dra/v1
"""

from kubelet.apis.dra.v1.types import DRA_PLUGIN_SERVICE

__all__ = ["DRA_PLUGIN_SERVICE"]
