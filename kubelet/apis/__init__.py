"""Define the kubelet's own API types, and the labels that it may set on its node.

Go: pkg/kubelet/apis, k8s.io/kubelet/pkg/apis
"""

from kubelet.apis.well_known_labels import (
    LABEL_ARCH,
    LABEL_OS,
    is_kubelet_label,
    kubelet_label_namespaces,
    kubelet_labels,
)

__all__ = ["LABEL_ARCH", "LABEL_OS", "is_kubelet_label", "kubelet_label_namespaces", "kubelet_labels"]
