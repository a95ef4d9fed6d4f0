"""Define the labels that a kubelet may set on its own node.

Go: k8s.io/kubelet/pkg/apis/well_known_labels.go
"""

# These are the beta labels for the operating system and the architecture.
LABEL_OS = "beta.kubernetes.io/os"
LABEL_ARCH = "beta.kubernetes.io/arch"

_KUBELET_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        LABEL_OS,
        LABEL_ARCH,
    }
)
_KUBELET_LABEL_NAMESPACES = frozenset({"kubelet.kubernetes.io", "node.kubernetes.io"})


def kubelet_labels() -> list[str]:
    """List the allowed labels in sorted order."""
    return sorted(_KUBELET_LABELS)


def kubelet_label_namespaces() -> list[str]:
    """List the namespaces in which every label is allowed, in sorted order."""
    return sorted(_KUBELET_LABEL_NAMESPACES)


def is_kubelet_label(key: str) -> bool:
    """Report whether a kubelet may set this label on its node."""
    if key in _KUBELET_LABELS:
        return True
    namespace = key.partition("/")[0] if "/" in key else ""
    return any(namespace == allowed or namespace.endswith(f".{allowed}") for allowed in _KUBELET_LABEL_NAMESPACES)
