"""List the features that nodes declare in this release.

Go: k8s.io/component-helpers/nodedeclaredfeatures/features
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.api.core import v1
from pkg.apimachinery.runtime import codec
from pkg.component_helpers.nodedeclaredfeatures.types import Feature, NodeConfiguration

_RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
_USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


def _restarts_all_containers(pod: v1.Pod) -> bool:
    return any(
        rule.action == v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS
        for container in [*pod.spec.containers, *pod.spec.init_containers]
        for rule in container.restart_policy_rules
    )


def _has_user_namespace_on_host_network(pod: v1.Pod) -> bool:
    return pod.spec.host_network and pod.spec.host_users is False


def _runtime_has_user_namespaces_on_host_network(cfg: NodeConfiguration) -> bool:
    return (
        cfg.feature_gates.enabled(_USER_NAMESPACES_HOST_NETWORK) and cfg.runtime_features.user_namespaces_host_network
    )


def _resizes_pod(old: v1.Pod, new: v1.Pod) -> bool:
    return not codec.semantic_equal(old.spec.resources, new.spec.resources)


def _resizes_init_containers(old: v1.Pod, new: v1.Pod) -> bool:
    pairs = zip(old.spec.init_containers, new.spec.init_containers, strict=False)
    return any(
        before.restart_policy != v1.CONTAINER_RESTART_POLICY_ALWAYS and before.resources != after.resources
        for before, after in pairs
    )


def _for_updates_alone(
    name: str, infer_for_update: Callable[[v1.Pod, v1.Pod], bool] = lambda old, new: False
) -> Feature:
    """Return a feature that concerns only requests of the API server, so no pod requires it for scheduling."""
    return Feature(
        name, lambda cfg: cfg.feature_gates.enabled(name), lambda pod: False, infer_for_update=infer_for_update
    )


ALL_FEATURES = (
    Feature(
        _RESTART_ALL_CONTAINERS,
        lambda cfg: cfg.feature_gates.enabled(_RESTART_ALL_CONTAINERS),
        _restarts_all_containers,
    ),
    _for_updates_alone("InPlacePodLevelResourcesVerticalScaling", _resizes_pod),
    _for_updates_alone("ExtendWebSocketsToKubelet"),
    _for_updates_alone("InPlacePodVerticalScalingInitContainers", _resizes_init_containers),
    Feature(
        _USER_NAMESPACES_HOST_NETWORK,
        _runtime_has_user_namespaces_on_host_network,
        _has_user_namespace_on_host_network,
    ),
)
