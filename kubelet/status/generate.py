"""Generate the conditions that the kubelet owns from the statuses of a pod's containers.

Go: pkg/kubelet/status/generate.go
"""

from __future__ import annotations

from collections.abc import Sequence

from kubelet import container as kubecontainer
from pkg import features
from pkg.api.core import v1
from pkg.api.v1 import pod as podutil

# These are the reasons of the conditions.
UNKNOWN_CONTAINER_STATUSES = "UnknownContainerStatuses"
POD_COMPLETED = "PodCompleted"
POD_FAILED = "PodFailed"
CONTAINERS_NOT_READY = "ContainersNotReady"
CONTAINERS_NOT_INITIALIZED = "ContainersNotInitialized"
READINESS_GATES_NOT_READY = "ReadinessGatesNotReady"
RESTART_ALL_CONTAINERS_STARTED = "RestartAllContainersStarted"

_TERMINAL_REASONS = {v1.POD_FAILED: POD_FAILED, v1.POD_SUCCEEDED: POD_COMPLETED}


def generate_containers_ready_condition(
    pod: v1.Pod,
    old_pod_status: v1.PodStatus,
    container_statuses: Sequence[v1.ContainerStatus] | None,
    pod_phase: str,
) -> v1.PodCondition:
    """Return the condition ContainersReady, which is true if all containers and sidecars are ready.

    `container_statuses` holds the statuses of containers of all kinds. None means that the statuses are unknown; an
    empty list means that there are none.
    """
    if container_statuses is None:
        return _condition(pod, old_pod_status, v1.CONTAINERS_READY, v1.CONDITION_FALSE, UNKNOWN_CONTAINER_STATUSES)
    sidecars = [c for c in pod.spec.init_containers if podutil.is_restartable_init_container(c)]
    statuses = {status.name: status for status in container_statuses}
    unknown, unready = [], []
    for container in [*sidecars, *pod.spec.containers]:
        status = statuses.get(container.name)
        if status is None:
            unknown.append(container.name)
        elif not status.ready:
            unready.append(container.name)
    # Some containers of a failed pod may still be running. They no longer count as ready.
    if pod_phase == v1.POD_FAILED or (pod_phase == v1.POD_SUCCEEDED and not unknown):
        return generate_containers_ready_condition_for_terminal_phase(pod, old_pod_status, pod_phase)
    message = _names_message(("unknown", unknown), ("unready", unready))
    if message:
        return _condition(pod, old_pod_status, v1.CONTAINERS_READY, v1.CONDITION_FALSE, CONTAINERS_NOT_READY, message)
    return _condition(pod, old_pod_status, v1.CONTAINERS_READY, v1.CONDITION_TRUE)


def generate_pod_ready_condition(
    pod: v1.Pod,
    old_pod_status: v1.PodStatus,
    conditions: Sequence[v1.PodCondition],
    container_statuses: Sequence[v1.ContainerStatus] | None,
    pod_phase: str,
) -> v1.PodCondition:
    """Return the condition Ready: true if ContainersReady and all conditions of the readiness gates are true."""
    ready = generate_containers_ready_condition(pod, old_pod_status, container_statuses, pod_phase)
    if ready.status != v1.CONDITION_TRUE:
        return _condition(pod, old_pod_status, v1.POD_READY, ready.status, ready.reason, ready.message)
    unready_messages = []
    for gate in pod.spec.readiness_gates:
        _, condition = podutil.get_pod_condition_from_list(conditions, gate.condition_type)
        if condition is None:
            unready_messages.append(
                f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.'
            )
        elif condition.status != v1.CONDITION_TRUE:
            unready_messages.append(
                f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {condition.status}'
            )
    if unready_messages:
        message = ", ".join(unready_messages)
        return _condition(pod, old_pod_status, v1.POD_READY, v1.CONDITION_FALSE, READINESS_GATES_NOT_READY, message)
    return _condition(pod, old_pod_status, v1.POD_READY, v1.CONDITION_TRUE)


def generate_pod_initialized_condition(
    pod: v1.Pod,
    old_pod_status: v1.PodStatus,
    container_statuses: Sequence[v1.ContainerStatus] | None,
    pod_phase: str,
) -> v1.PodCondition:
    """Return the condition Initialized: true if all init containers have succeeded and all sidecars have started."""
    if container_statuses is None and pod.spec.init_containers:
        return _condition(pod, old_pod_status, v1.POD_INITIALIZED, v1.CONDITION_FALSE, UNKNOWN_CONTAINER_STATUSES)
    container_statuses = container_statuses or []
    statuses = {status.name: status for status in container_statuses}
    unknown, incomplete = [], []
    for container in pod.spec.init_containers:
        status = statuses.get(container.name)
        if status is None:
            unknown.append(container.name)
        elif not _is_init_container_initialized(container, status):
            incomplete.append(container.name)
    if pod_phase == v1.POD_SUCCEEDED and not unknown:
        return _condition(pod, old_pod_status, v1.POD_INITIALIZED, v1.CONDITION_TRUE, POD_COMPLETED)
    # A started container proves that the pod was initialized, even if a sidecar is restarting now.
    if kubecontainer.has_any_regular_container_started(pod.spec, container_statuses):
        return _condition(pod, old_pod_status, v1.POD_INITIALIZED, v1.CONDITION_TRUE)
    message = _names_message(("unknown", unknown), ("incomplete", incomplete))
    if message and not _stays_initialized(old_pod_status):
        return _condition(
            pod, old_pod_status, v1.POD_INITIALIZED, v1.CONDITION_FALSE, CONTAINERS_NOT_INITIALIZED, message
        )
    return _condition(pod, old_pod_status, v1.POD_INITIALIZED, v1.CONDITION_TRUE)


def _is_init_container_initialized(container: v1.Container, status: v1.ContainerStatus) -> bool:
    if podutil.is_restartable_init_container(container):
        return bool(status.started)
    return status.ready


def _stays_initialized(old_pod_status: v1.PodStatus) -> bool:
    """Report whether the condition stays true while a pod that restarts in place reruns its init containers."""
    if not features.feature_gate.enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS):
        return False
    _, condition = podutil.get_pod_condition(old_pod_status, v1.POD_INITIALIZED)
    return condition is not None and condition.status == v1.CONDITION_TRUE


def generate_pod_ready_to_start_containers_condition(
    pod: v1.Pod, old_pod_status: v1.PodStatus, pod_status: kubecontainer.PodStatus
) -> v1.PodCondition:
    """Return the condition PodReadyToStartContainers: true if the pod has its sandbox, including its network."""
    # This import is local because the package kubelet.kuberuntime imports modules that import this one.
    from kubelet.kuberuntime import util as runtimeutil

    sandbox = runtimeutil.pod_sandbox_changed(pod, pod_status)
    status = v1.CONDITION_FALSE if sandbox.create else v1.CONDITION_TRUE
    return _condition(pod, old_pod_status, v1.POD_READY_TO_START_CONTAINERS, status)


def generate_containers_ready_condition_for_terminal_phase(
    pod: v1.Pod, old_pod_status: v1.PodStatus, pod_phase: str
) -> v1.PodCondition:
    """Return the condition ContainersReady of a terminal pod."""
    reason = _TERMINAL_REASONS.get(pod_phase, "")
    return _condition(pod, old_pod_status, v1.CONTAINERS_READY, v1.CONDITION_FALSE, reason)


def generate_pod_ready_condition_for_terminal_phase(
    pod: v1.Pod, old_pod_status: v1.PodStatus, pod_phase: str
) -> v1.PodCondition:
    """Return the condition Ready of a terminal pod."""
    reason = _TERMINAL_REASONS.get(pod_phase, "")
    return _condition(pod, old_pod_status, v1.POD_READY, v1.CONDITION_FALSE, reason)


def generate_all_containers_restarting_condition(
    pod: v1.Pod, pod_status: kubecontainer.PodStatus, old_pod_status: v1.PodStatus, pod_phase: str
) -> v1.PodCondition:
    """Return the condition AllContainersRestarting.

    The condition is true from the exit that restarts the pod in place until the kubelet has removed all containers.
    """
    if podutil.is_pod_phase_terminal(pod_phase):
        reason = _TERMINAL_REASONS[pod_phase]
        return v1.PodCondition(type=v1.ALL_CONTAINERS_RESTARTING, status=v1.CONDITION_FALSE, reason=reason)
    if not kubecontainer.should_all_containers_restart(
        pod, pod_status, old_pod_status
    ) or kubecontainer.all_containers_restart_cleaned_up(pod, pod_status):
        return v1.PodCondition(type=v1.ALL_CONTAINERS_RESTARTING, status=v1.CONDITION_FALSE)
    return v1.PodCondition(
        type=v1.ALL_CONTAINERS_RESTARTING,
        status=v1.CONDITION_TRUE,
        reason=RESTART_ALL_CONTAINERS_STARTED,
        message="container exited with restart policy rule",
    )


def _condition(
    pod: v1.Pod,
    old_pod_status: v1.PodStatus,
    condition_type: str,
    status: str,
    reason: str = "",
    message: str = "",
) -> v1.PodCondition:
    generation = podutil.calculate_pod_condition_observed_generation(
        old_pod_status, pod.metadata.generation, condition_type
    )
    return v1.PodCondition(
        type=condition_type, observed_generation=generation, status=status, reason=reason, message=message
    )


def _names_message(*groups: tuple[str, list[str]]) -> str:
    """Return `containers with unknown status: [a b], …`, without empty groups."""
    return ", ".join(f"containers with {what} status: [{' '.join(names)}]" for what, names in groups if names)
