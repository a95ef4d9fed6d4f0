"""What is to be done for a pod: the outcome of compute_pod_actions.

Go: pkg/kubelet/kuberuntime/kuberuntime_manager.go (podActions and what it is made of)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubelet import container as kubecontainer
from pkg.api.core import v1


@dataclass(frozen=True, slots=True)
class ContainerToKillInfo:
    """A container to kill: its spec, its name, and why, as an event tells it and in a word."""

    container: v1.Container
    name: str
    message: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ContainerToRemoveInfo:
    """A container to remove, killed first if it may run."""

    container_id: kubecontainer.ContainerID
    container: v1.Container
    kill: bool = False


@dataclass(slots=True)
class ResourceRequirements:
    """Bytes and thousandths of a CPU that a container or a pod has; 0 for none."""

    memory_limit: int = 0
    memory_request: int = 0
    cpu_limit: int = 0
    cpu_request: int = 0


@dataclass(slots=True)
class ContainerToUpdateInfo:
    """A running container whose resources are to change."""

    container: v1.Container
    kube_container_id: kubecontainer.ContainerID
    desired_container_resources: ResourceRequirements
    # What is in force by all we know: shared by the entries of one container, and brought up to date by each.
    current_container_resources: ResourceRequirements


@dataclass(slots=True)
class PodActions:
    """The outcome of compute_pod_actions. Containers to start are given by their index in the spec. Go: podActions"""

    # Stop all containers and the sandbox.
    kill_pod: bool = False
    # Make a new sandbox, which means to begin with the init containers again.
    create_sandbox: bool = False
    # The sandbox that is there; containers are started in it unless a new one is made.
    sandbox_id: str = ""
    # The number of the attempt to make a sandbox.
    attempt: int = 0
    init_containers_to_start: list[int] = field(default_factory=list)
    containers_to_start: list[int] = field(default_factory=list)
    ephemeral_containers_to_start: list[int] = field(default_factory=list)
    containers_to_kill: dict[kubecontainer.ContainerID, ContainerToKillInfo] = field(default_factory=dict)
    # Containers whose "cpu" or "memory" changes while they run; those that give up some come first.
    containers_to_update: dict[str, list[ContainerToUpdateInfo]] = field(default_factory=dict)
    # A container is restarted for its new resources: the pod's cgroup has to change too.
    update_pod_resources: bool = False
    # For the restart of the whole pod in place; what triggered it comes last.
    containers_to_reset: list[ContainerToRemoveInfo] = field(default_factory=list)
    # The resources of the pod as a whole change.
    update_pod_level_resources: bool = False

    def resizes(self) -> bool:
        """Whether any resources change."""
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
