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
from pkg.component_helpers.node.util.sysctl.sysctl import normalize_name

__all__ = [
    "IPC_NAMESPACE",
    "NET_NAMESPACE",
    "UNKNOWN_NAMESPACE",
    "Namespace",
    "get_namespace",
    "normalize_name",
]
