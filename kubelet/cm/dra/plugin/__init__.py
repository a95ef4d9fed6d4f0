"""Register and call the plugins of drivers, and delete the slices of drivers that are gone.

Go: pkg/kubelet/cm/dra/plugin
"""

from kubelet.cm.dra.plugin.dra_plugin import DEFAULT_CLIENT_CALL_TIMEOUT, SERVICES_SUPPORTED_BY_KUBELET, DRAPlugin
from kubelet.cm.dra.plugin.dra_plugin_manager import DRAPluginManager
from kubelet.cm.dra.plugin.types import StreamHandler

__all__ = [
    "DEFAULT_CLIENT_CALL_TIMEOUT",
    "SERVICES_SUPPORTED_BY_KUBELET",
    "DRAPlugin",
    "DRAPluginManager",
    "StreamHandler",
]
