"""Inspect a pod's containers, references and conditions.

Go: pkg/api/v1/pod/util.go
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1


class ContainerType(enum.IntFlag):
    """Select the lists of containers in a pod spec, as a mask."""

    CONTAINERS = 1
    INIT_CONTAINERS = 2
    EPHEMERAL_CONTAINERS = 4


CONTAINERS = ContainerType.CONTAINERS
INIT_CONTAINERS = ContainerType.INIT_CONTAINERS
EPHEMERAL_CONTAINERS = ContainerType.EPHEMERAL_CONTAINERS
ALL_CONTAINERS = INIT_CONTAINERS | CONTAINERS | EPHEMERAL_CONTAINERS

# A visitor returns whether to continue.
Visitor = Callable[[str], bool]


def container_iter(pod_spec: v1.PodSpec, mask: ContainerType) -> Iterator[tuple[v1.Container, ContainerType]]:
    """Yield the containers of the masked types with their type, in the order init, regular, ephemeral.

    An ephemeral container has all fields of a container, so it is treated as one, as in Go.
    """
    if mask & INIT_CONTAINERS:
        for container in pod_spec.init_containers:
            yield container, INIT_CONTAINERS
    if mask & CONTAINERS:
        for container in pod_spec.containers:
            yield container, CONTAINERS
    if mask & EPHEMERAL_CONTAINERS:
        for ephemeral in pod_spec.ephemeral_containers:
            yield cast(v1.Container, ephemeral), EPHEMERAL_CONTAINERS


def visit_pod_secret_names(pod: v1.Pod, visitor: Visitor) -> bool:
    """Call visitor for each secret in the spec; return False as soon as the visitor does."""
    return all(visitor(name) for name in _pod_secret_names(pod) if name)


def _pod_secret_names(pod: v1.Pod) -> Iterator[str]:
    for reference in pod.spec.image_pull_secrets:
        yield reference.name
    for container, _ in container_iter(pod.spec, ALL_CONTAINERS):
        yield from _container_secret_names(container)
    for volume in pod.spec.volumes:
        yield from _volume_secret_names(volume)


def _volume_secret_names(volume: v1.Volume) -> Iterator[str]:
    """Yield the secrets of one volume source; each kind of source has its own fields for them."""
    if volume.azure_file is not None:
        yield volume.azure_file.secret_name
    elif volume.projected is not None:
        for projection in volume.projected.sources:
            if projection.secret is not None:
                yield projection.secret.name
    elif volume.secret is not None:
        yield volume.secret.secret_name
    elif volume.csi is not None:
        if volume.csi.node_publish_secret_ref is not None:
            yield volume.csi.node_publish_secret_ref.name
    else:
        for source in (
            volume.cephfs,
            volume.cinder,
            volume.flex_volume,
            volume.rbd,
            volume.scale_io,
            volume.iscsi,
            volume.storageos,
        ):
            if source is not None and source.secret_ref is not None:
                yield source.secret_ref.name


def _container_secret_names(container: v1.Container) -> Iterator[str]:
    for source in container.env_from:
        if source.secret_ref is not None:
            yield source.secret_ref.name
    for env in container.env:
        if env.value_from is not None and env.value_from.secret_key_ref is not None:
            yield env.value_from.secret_key_ref.name


def visit_pod_configmap_names(pod: v1.Pod, visitor: Visitor) -> bool:
    """Call visitor for each config map in the spec; return False as soon as the visitor does."""
    return all(visitor(name) for name in _pod_configmap_names(pod) if name)


def _pod_configmap_names(pod: v1.Pod) -> Iterator[str]:
    for container, _ in container_iter(pod.spec, ALL_CONTAINERS):
        yield from _container_configmap_names(container)
    for volume in pod.spec.volumes:
        if volume.projected is not None:
            for projection in volume.projected.sources:
                if projection.config_map is not None:
                    yield projection.config_map.name
        elif volume.config_map is not None:
            yield volume.config_map.name


def _container_configmap_names(container: v1.Container) -> Iterator[str]:
    for source in container.env_from:
        if source.config_map_ref is not None:
            yield source.config_map_ref.name
    for env in container.env:
        if env.value_from is not None and env.value_from.config_map_key_ref is not None:
            yield env.value_from.config_map_key_ref.name


def get_container_status(statuses: Iterable[v1.ContainerStatus], name: str) -> v1.ContainerStatus | None:
    """Return the status of the container with this name, or None."""
    return next((status for status in statuses if status.name == name), None)


def is_pod_terminal(pod: v1.Pod) -> bool:
    """Report whether the phase says that all containers have stopped permanently."""
    return is_pod_phase_terminal(pod.status.phase)


def is_pod_phase_terminal(phase: str) -> bool:
    return phase in (v1.POD_FAILED, v1.POD_SUCCEEDED)


def is_pod_ready_condition_true(status: v1.PodStatus) -> bool:
    condition = get_pod_ready_condition(status)
    return condition is not None and condition.status == v1.CONDITION_TRUE


def is_containers_ready_condition_true(status: v1.PodStatus) -> bool:
    condition = get_containers_ready_condition(status)
    return condition is not None and condition.status == v1.CONDITION_TRUE


def get_pod_ready_condition(status: v1.PodStatus) -> v1.PodCondition | None:
    return get_pod_condition(status, v1.POD_READY)[1]


def get_containers_ready_condition(status: v1.PodStatus) -> v1.PodCondition | None:
    return get_pod_condition(status, v1.CONTAINERS_READY)[1]


def get_pod_condition(status: v1.PodStatus | None, condition_type: str) -> tuple[int, v1.PodCondition | None]:
    """Return the index and the condition of this type, or (-1, None) if there is none."""
    if status is None:
        return -1, None
    return get_pod_condition_from_list(status.conditions, condition_type)


def get_pod_condition_from_list(
    conditions: Sequence[v1.PodCondition], condition_type: str
) -> tuple[int, v1.PodCondition | None]:
    """Return the index and the condition of this type, or (-1, None) if there is none."""
    for i, condition in enumerate(conditions):
        if condition.type == condition_type:
            return i, condition
    return -1, None


def update_pod_condition(status: v1.PodStatus, condition: v1.PodCondition) -> bool:
    """Add the condition to the status or replace it, and report whether anything changed.

    Both arguments are modified: the condition gets its last_transition_time, which is the current time if the
    condition's status changed.
    """
    condition.last_transition_time = metav1.now()
    index, old = get_pod_condition(status, condition.type)
    if old is None:
        status.conditions.append(condition)
        return True
    if condition.status == old.status:
        condition.last_transition_time = old.last_transition_time
    status.conditions[index] = condition
    # A new observed generation alone does not count as a change.
    return (condition.status, condition.reason, condition.message, condition.last_probe_time) != (
        old.status,
        old.reason,
        old.message,
        old.last_probe_time,
    )


def is_restartable_init_container(init_container: v1.Container | None) -> bool:
    """Report whether an init container is a sidecar."""
    return init_container is not None and init_container.restart_policy == v1.CONTAINER_RESTART_POLICY_ALWAYS


def is_container_restartable(pod: v1.PodSpec, container: v1.Container) -> bool:
    """Report whether some exit of the container would restart it, by its own policy or else the pod's."""
    if container.restart_policy is None:
        return pod.restart_policy != v1.RESTART_POLICY_NEVER
    restarting = v1.CONTAINER_RESTART_RULE_ACTION_RESTART
    if any(rule.action == restarting for rule in container.restart_policy_rules):
        return True
    return container.restart_policy != v1.CONTAINER_RESTART_POLICY_NEVER


def container_should_restart(container: v1.Container, pod: v1.PodSpec, exit_code: int) -> bool:
    """Report whether to restart the container after exit_code, by the first matching rule or else the policy."""
    if container.restart_policy is not None:
        rule = find_matching_container_restart_rule(container, exit_code)
        if rule is not None and _rule_restarts(rule):
            return True
    match container.restart_policy or pod.restart_policy:
        case "OnFailure":
            return exit_code != 0
        case "Never":
            return False
        case _:
            return True


def _rule_restarts(rule: v1.ContainerRestartRule) -> bool:
    if rule.action == v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS:
        return features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS)
    return rule.action == v1.CONTAINER_RESTART_RULE_ACTION_RESTART


def find_matching_container_restart_rule(container: v1.Container, exit_code: int) -> v1.ContainerRestartRule | None:
    """Return the container's first restart rule that matches exit_code, or None."""
    for rule in container.restart_policy_rules:
        if rule.exit_codes is None:
            continue
        listed = exit_code in rule.exit_codes.values
        match rule.exit_codes.operator:
            case "In" if listed:
                return rule
            case "NotIn" if not listed:
                return rule
    return None


def all_containers_could_restart(pod: v1.PodSpec | None) -> bool:
    """Report whether a container's exit may restart the whole pod in place."""
    if pod is None:
        return False
    return any(
        rule.action == v1.CONTAINER_RESTART_RULE_ACTION_RESTART_ALL_CONTAINERS
        for container, _ in container_iter(pod, INIT_CONTAINERS | CONTAINERS)
        for rule in container.restart_policy_rules
    )


def calculate_pod_status_observed_generation(pod: v1.Pod) -> int:
    """Return the generation to report as observed; its feature gate is locked on."""
    return pod.metadata.generation


def calculate_pod_condition_observed_generation(
    pod_status: v1.PodStatus | None, generation: int, condition_type: str
) -> int:
    """Return the generation to report with a condition; its feature gate is locked on."""
    return 0 if pod_status is None else generation
