"""Describe the result of compute_pod_actions: what the kubelet must do for a pod.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go (podActions and related types)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubelet import container as kubecontainer
from pkg.api.core import v1


@dataclass(frozen=True, slots=True)
class ContainerToKillInfo:
    """Describe a container to kill: its spec, its name, the message for the event, and the reason in one word."""

    container: v1.Container
    name: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ContainerToRemoveInfo:
    """Describe a container to remove; `kill` tells whether it must be killed first."""

    container_id: kubecontainer.ContainerID
    container: v1.Container
    kill: bool = False


@dataclass(slots=True)
class ResourceRequirements:
    """Hold the memory, in bytes, and the CPU, in millicores, of a container or a pod; 0 means that none is set."""

    memory_limit: int = 0
    memory_request: int = 0
    cpu_limit: int = 0
    cpu_request: int = 0


@dataclass(slots=True)
class ContainerToUpdateInfo:
    """Describe a running container whose resources must change."""

    container: v1.Container
    kube_container_id: kubecontainer.ContainerID
    desired_container_resources: ResourceRequirements
    # `current_container_resources` holds the actuated resources. All entries for one container share the object, and
    # each update changes it.
    current_container_resources: ResourceRequirements


@dataclass(slots=True)
class PodActions:
    """Hold the result of compute_pod_actions. Containers to start are indexes in the spec.

    Go: podActions
    """

    # `kill_pod` means that all containers and the sandbox must be stopped.
    kill_pod: bool = False
    # `create_sandbox` means that a new sandbox must be created, in which the init containers run again.
    create_sandbox: bool = False
    # `sandbox_id` is the existing sandbox, in which containers start unless a new one is created.
    sandbox_id: str = ""
    # `attempt` is the number of the attempt to create a sandbox.
    attempt: int = 0
    init_containers_to_start: list[int] = field(default_factory=list)
    containers_to_start: list[int] = field(default_factory=list)
    ephemeral_containers_to_start: list[int] = field(default_factory=list)
    containers_to_kill: dict[kubecontainer.ContainerID, ContainerToKillInfo] = field(default_factory=dict)
    # The keys are "cpu" and "memory". The containers change while they run; those that shrink come first.
    containers_to_update: dict[str, list[ContainerToUpdateInfo]] = field(default_factory=dict)
    # `update_pod_resources` means that a container restarts to get new resources, so the pod's cgroup must change too.
    update_pod_resources: bool = False
    # These containers are removed to restart the whole pod in place. Those that triggered the restart come last.
    containers_to_reset: list[ContainerToRemoveInfo] = field(default_factory=list)
    # `update_pod_level_resources` means that the pod-level resources change.
    update_pod_level_resources: bool = False

    def resizes(self) -> bool:
        """Report whether any resources change."""
        return bool(self.containers_to_update or self.update_pod_resources or self.update_pod_level_resources)

    def __str__(self) -> str:
        return (
            f"KillPod: {_bool(self.kill_pod)}, CreateSandbox: {_bool(self.create_sandbox)},"
            f" UpdatePodResources: {_bool(self.update_pod_resources)},"
            f" UpdatePodLevelResources: {_bool(self.update_pod_level_resources)},"
            f" Attempt: {self.attempt}, InitContainersToStart: {self.init_containers_to_start},"
            f" ContainersToStart: {self.containers_to_start},"
            f" EphemeralContainersToStart: {self.ephemeral_containers_to_start},"
            f" ContainersToUpdate: {_names(self.containers_to_update)},"
            f" ContainersToKill: {[info.name for info in self.containers_to_kill.values()]},"
            f" ContainersToRemove: {[info.container.name for info in self.containers_to_reset]}"
        )


def _bool(value: bool) -> str:
    return str(value).lower()


def _names(updates: dict[str, list[ContainerToUpdateInfo]]) -> dict[str, list[str]]:
    return {name: [info.container.name for info in infos] for name, infos in updates.items()}
