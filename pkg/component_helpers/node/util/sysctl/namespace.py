"""Find the kernel namespace to which a sysctl belongs.

Go: k8s.io/component-helpers/node/util/sysctl/namespace.go
"""

from __future__ import annotations

from dataclasses import dataclass

from pkg.component_helpers.node.util.sysctl.sysctl import normalize_name

Namespace = str

IPC_NAMESPACE: Namespace = "IPC"
NET_NAMESPACE: Namespace = "Net"
UNKNOWN_NAMESPACE: Namespace = ""

# "kernel.shm" and "kernel.msg" are here because the patterns "kernel.shm*" and "kernel.msg*" are cut at the star.
_IPC_NAMES = frozenset(
    f"kernel.{name}"
    for name in (
        "sem",
        "shmall",
        "shmmax",
        "shmmni",
        "shm_rmid_forced",
        "shm",
        "msgmax",
        "msgmnb",
        "msgmni",
        "msg",
    )
)
_PREFIXES = {"net.": NET_NAMESPACE, "fs.mqueue.": IPC_NAMESPACE}


def _namespace_of(name: str) -> Namespace:
    if name in _IPC_NAMES:
        return IPC_NAMESPACE
    for prefix, namespace in _PREFIXES.items():
        if name.startswith(prefix):
            return namespace
    return UNKNOWN_NAMESPACE


@dataclass(frozen=True, slots=True)
class NamespacedSysctl:
    """Describe a sysctl, or all sysctls with a common prefix, and their namespace."""

    namespace: Namespace
    # `name` is the name in dotted form, up to the first star.
    name: str
    # `is_prefix` is True if there was a star.
    is_prefix: bool


def get_namespace(sysctl: str) -> NamespacedSysctl:
    name, star, _ = normalize_name(sysctl).partition("*")
    return NamespacedSysctl(_namespace_of(name), name, bool(star))
