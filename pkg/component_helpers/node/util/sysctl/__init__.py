"""Read and write kernel parameters, and find the namespaces to which they belong.

Go: k8s.io/component-helpers/node/util/sysctl
"""

from pkg.component_helpers.node.util.sysctl.namespace import (
    IPC_NAMESPACE,
    NET_NAMESPACE,
    UNKNOWN_NAMESPACE,
    Namespace,
    NamespacedSysctl,
    get_namespace,
)
from pkg.component_helpers.node.util.sysctl.sysctl import (
    KERNEL_PANIC,
    KERNEL_PANIC_ON_OOPS,
    KERNEL_PANIC_ON_OOPS_ALWAYS,
    KERNEL_PANIC_REBOOT_TIMEOUT,
    ROOT_MAX_BYTES,
    ROOT_MAX_BYTES_SETTING,
    ROOT_MAX_KEYS,
    ROOT_MAX_KEYS_SETTING,
    SYSCTL_BASE,
    VM_OVERCOMMIT_MEMORY,
    VM_OVERCOMMIT_MEMORY_ALWAYS,
    VM_PANIC_ON_OOM,
    VM_PANIC_ON_OOM_INVOKE_OOM_KILLER,
    get_sysctl,
    normalize_name,
    set_sysctl,
)

__all__ = [
    "IPC_NAMESPACE",
    "KERNEL_PANIC",
    "KERNEL_PANIC_ON_OOPS",
    "KERNEL_PANIC_ON_OOPS_ALWAYS",
    "KERNEL_PANIC_REBOOT_TIMEOUT",
    "NET_NAMESPACE",
    "ROOT_MAX_BYTES",
    "ROOT_MAX_BYTES_SETTING",
    "ROOT_MAX_KEYS",
    "ROOT_MAX_KEYS_SETTING",
    "SYSCTL_BASE",
    "UNKNOWN_NAMESPACE",
    "VM_OVERCOMMIT_MEMORY",
    "VM_OVERCOMMIT_MEMORY_ALWAYS",
    "VM_PANIC_ON_OOM",
    "VM_PANIC_ON_OOM_INVOKE_OOM_KILLER",
    "Namespace",
    "NamespacedSysctl",
    "get_namespace",
    "get_sysctl",
    "normalize_name",
    "set_sysctl",
]
