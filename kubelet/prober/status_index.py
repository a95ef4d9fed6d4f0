"""What the workers of one pod look up in its status, found once for each status.

In Go each worker searches the whole status, which takes the square of the number of the pod's containers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kubelet import container as kubecontainer
from pkg.api.core import v1


class StatusIndex:
    """Shared by the workers of a pod. Safe from any thread: what two find at the same time is the same."""

    def __init__(self, pod: v1.Pod) -> None:
        self._pod = pod
        self._found = _Found(pod, v1.PodStatus())

    def container_status(self, status: v1.PodStatus, name: str) -> v1.ContainerStatus | None:
        """The container's status once it has an id."""
        return self._find(status).containers.get(name)

    def all_containers_restart(self, status: v1.PodStatus) -> bool:
        """Whether the whole pod is to be restarted in place."""
        return self._find(status).restarts_all

    def _find(self, status: v1.PodStatus) -> _Found:
        found = self._found
        # The status manager gives the same object until the status changes, and never changes the object.
        if found.status is not status:
            found = self._found = _Found(self._pod, status)
        return found


@dataclass(frozen=True, eq=False)
class _Found:
    pod: v1.Pod
    status: v1.PodStatus

    @cached_property
    def containers(self) -> dict[str, v1.ContainerStatus]:
        """The containers that have an id, by name."""
        statuses = [*self.status.init_container_statuses, *self.status.container_statuses]
        return {status.name: status for status in statuses if status.container_id}

    @cached_property
    def restarts_all(self) -> bool:
        return kubecontainer.should_all_containers_restart(self.pod, None, self.status)
