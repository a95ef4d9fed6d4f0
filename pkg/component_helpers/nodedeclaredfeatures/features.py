"""The features that nodes declare in this release.

Go: staging/src/k8s.io/component-helpers/nodedeclaredfeatures/features
"""

from __future__ import annotations

from pkg.api.core import v1
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


def _for_updates_alone(name: str) -> Feature:
    """A feature of the API server's dealings with a node: no pod needs it to be scheduled."""
    return Feature(name, lambda cfg: cfg.feature_gates.enabled(name), lambda pod: False)


ALL_FEATURES = (
    Feature(
        _RESTART_ALL_CONTAINERS,
        lambda cfg: cfg.feature_gates.enabled(_RESTART_ALL_CONTAINERS),
        _restarts_all_containers,
    ),
    _for_updates_alone("InPlacePodLevelResourcesVerticalScaling"),
    _for_updates_alone("ExtendWebSocketsToKubelet"),
    _for_updates_alone("InPlacePodVerticalScalingInitContainers"),
    Feature(
        _USER_NAMESPACES_HOST_NETWORK,
        _runtime_has_user_namespaces_on_host_network,
        _has_user_namespace_on_host_network,
    ),
)
