"""Which of the newer features this node has, so that the scheduler sends pods that need them only where they work.

Go: pkg/kubelet/kubelet_node_declared_features.go (with staging/src/k8s.io/component-helpers/nodedeclaredfeatures)
"""

from __future__ import annotations

from kubelet import container as kubecontainer
from pkg import features

# DIVERGES: Go also declares ExtendWebSocketsToKubelet, InPlacePodLevelResourcesVerticalScaling and
# InPlacePodVerticalScalingInitContainers. This kubelet does none of them yet, and must not be relied on for them.
_DECLARED_BY_GATE = (features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS,)


def discover_node_declared_features(runtime_features: kubecontainer.RuntimeFeatures | None) -> list[str]:
    """The names, sorted."""
    gate = features.feature_gate
    found = [name for name in _DECLARED_BY_GATE if gate.enabled(name)]
    in_runtime = runtime_features is not None and runtime_features.user_namespaces_host_network
    if in_runtime and gate.enabled(features.USER_NAMESPACES_HOST_NETWORK_SUPPORT):
        found.append(features.USER_NAMESPACES_HOST_NETWORK_SUPPORT)
    return sorted(found)
