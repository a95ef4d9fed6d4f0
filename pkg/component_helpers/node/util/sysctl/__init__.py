"""Names and namespaces of kernel parameters, and reading and writing them.

Go: k8s.io/component-helpers/node/util/sysctl
"""

from pkg.component_helpers.node.util.sysctl.namespace import (
    IPC_NAMESPACE,
    NET_NAMESPACE,
    UNKNOWN_NAMESPACE,
    Namespace,
    get_namespace,
)
from pkg.component_helpers.node.util.sysctl.sysctl import get_sysctl, normalize_name, set_sysctl

__all__ = [
    "IPC_NAMESPACE",
    "NET_NAMESPACE",
    "UNKNOWN_NAMESPACE",
    "Namespace",
    "get_namespace",
    "get_sysctl",
    "normalize_name",
    "set_sysctl",
]
