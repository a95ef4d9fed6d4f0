"""Provide the ConfigMaps to which pods on this node refer.

Go: pkg/kubelet/configmap
"""

from kubelet.configmap.configmap_manager import (
    ConfigMapManager,
    Manager,
    SimpleConfigMapManager,
    new_caching_config_map_manager,
    new_watching_config_map_manager,
)

__all__ = [
    "ConfigMapManager",
    "Manager",
    "SimpleConfigMapManager",
    "new_caching_config_map_manager",
    "new_watching_config_map_manager",
]
