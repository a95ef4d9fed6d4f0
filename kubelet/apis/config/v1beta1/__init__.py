"""Set the defaults of version v1beta1 of the configuration.

Go: pkg/kubelet/apis/config/v1beta1
"""

from kubelet.apis.config.v1beta1.defaults import (
    DEFAULT_POD_LOGS_DIR,
    DEFAULT_VOLUME_PLUGIN_DIR,
    KUBELET_PORT,
    KUBELET_READ_ONLY_PORT,
    MAX_CONTAINER_BACK_OFF,
    set_defaults_kubelet_configuration,
)

__all__ = [
    "DEFAULT_POD_LOGS_DIR",
    "DEFAULT_VOLUME_PLUGIN_DIR",
    "KUBELET_PORT",
    "KUBELET_READ_ONLY_PORT",
    "MAX_CONTAINER_BACK_OFF",
    "set_defaults_kubelet_configuration",
]
