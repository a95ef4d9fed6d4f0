"""Which of the newer features this node has, so that the scheduler sends pods that need them only where they work.

Go: pkg/kubelet/kubelet_node_declared_features.go (with staging/src/k8s.io/component-helpers/nodedeclaredfeatures)
"""

from __future__ import annotations

from kubelet import container as kubecontainer
from pkg import features
from pkg.component_helpers import nodedeclaredfeatures as ndf

# DIVERGES: Go declares this too. This kubelet does not do it yet, and must not be relied on for it.
_NOT_YET = frozenset({features.EXTEND_WEBSOCKETS_TO_KUBELET})


def discover_node_declared_features(runtime_features: kubecontainer.RuntimeFeatures | None) -> list[str]:
    """The names, sorted."""
    on_host_network = runtime_features is not None and runtime_features.user_namespaces_host_network
    cfg = ndf.NodeConfiguration(
        feature_gates=features.feature_gate,
        runtime_features=ndf.RuntimeFeatures(user_namespaces_host_network=on_host_network),
    )
    return [name for name in ndf.DEFAULT_FRAMEWORK.discover_node_features(cfg) if name not in _NOT_YET]
