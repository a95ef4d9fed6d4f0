"""Define the kubelet's command-line options.

Go: cmd/kubelet/app/options
"""

from .globalflags import GlobalFlags, add_global_flags
from .options import (
    CONFIG_FLAGS,
    LEGACY_DEFAULTS,
    KubeletFlags,
    KubeletServer,
    add_kubelet_config_flags,
    new_kubelet_configuration,
    validate_kubelet_flags,
    validate_kubelet_server,
)

__all__ = [
    "CONFIG_FLAGS",
    "LEGACY_DEFAULTS",
    "GlobalFlags",
    "KubeletFlags",
    "KubeletServer",
    "add_global_flags",
    "add_kubelet_config_flags",
    "new_kubelet_configuration",
    "validate_kubelet_flags",
    "validate_kubelet_server",
]
