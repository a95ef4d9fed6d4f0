"""Check whether a persistent volume can be used on a node.

Go: k8s.io/component-helpers/storage/volume/helpers.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_helpers.scheduling.corev1 import nodeaffinity


def check_node_affinity(pv: v1.PersistentVolume, node_labels: dict[str, str]) -> None:
    """Raise ValueError when the volume's node affinity does not match these labels."""
    affinity = pv.spec.node_affinity
    if affinity is None or affinity.required is None:
        return
    node = v1.Node(metadata=metav1.ObjectMeta(labels=node_labels))
    if not nodeaffinity.match_node_selector(affinity.required, node):
        raise ValueError("no matching NodeSelectorTerms")
