"""Declare the node's newer features, so that the scheduler places pods that need them only where they work.

Go: pkg/kubelet/kubelet_node_declared_features.go, k8s.io/component-helpers/nodedeclaredfeatures
"""

from __future__ import annotations

from kubelet import container as kubecontainer
from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.util import version as utilversion
from pkg.component_base import version
from pkg.component_helpers import nodedeclaredfeatures as ndf


def discover_node_declared_features(runtime_features: kubecontainer.RuntimeFeatures | None) -> list[str]:
    """Return the names of the node's features, sorted."""
    on_host_network = runtime_features is not None and runtime_features.user_namespaces_host_network
    cfg = ndf.NodeConfiguration(
        feature_gates=features.feature_gate,
        runtime_features=ndf.RuntimeFeatures(user_namespaces_host_network=on_host_network),
    )
    return ndf.DEFAULT_FRAMEWORK.discover_node_features(cfg)


def missing_for_update(
    old_pod: v1.Pod, new_pod: v1.Pod, runtime_features: kubecontainer.RuntimeFeatures | None
) -> tuple[str, ...]:
    """Return the features that this node lacks for the update of the pod.

    Go: kubelet.go (HandlePodUpdates)
    """
    if not features.feature_gate.enabled(features.NODE_DECLARED_FEATURES):
        return ()
    target = utilversion.parse(version.get().git_version)
    required = ndf.DEFAULT_FRAMEWORK.infer_for_pod_update(old_pod, new_pod, target)
    if not required:
        return ()
    declared = frozenset(discover_node_declared_features(runtime_features))
    return ndf.DEFAULT_FRAMEWORK.match_node_feature_set(required, declared).unsatisfied_requirements
