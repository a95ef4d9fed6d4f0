"""Index the status of a pod for its probe workers, once for each status.

In Go each worker searches the whole status, which takes time quadratic in the number of the pod's containers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kubelet import container as kubecontainer
from pkg.api.core import v1


class StatusIndex:
    """Index the current status for all workers of a pod.

    All methods are thread-safe: two threads that build the index at the same time get equal results.
    """

    def __init__(self, pod: v1.Pod) -> None:
        self._pod = pod
        self._found = _Found(pod, v1.PodStatus())

    def container_status(self, status: v1.PodStatus, name: str) -> v1.ContainerStatus | None:
        """Return the container's status if it has an ID, otherwise None."""
        return self._find(status).containers.get(name)

    def all_containers_restart(self, status: v1.PodStatus) -> bool:
        """Report whether the whole pod must restart in place."""
        return self._find(status).restarts_all

    def _find(self, status: v1.PodStatus) -> _Found:
        found = self._found
        # The status manager returns the same object until the status changes, and never modifies the object.
        if found.status is not status:
            found = self._found = _Found(self._pod, status)
        return found


@dataclass(frozen=True, eq=False)
class _Found:
    pod: v1.Pod
    status: v1.PodStatus

    @cached_property
    def containers(self) -> dict[str, v1.ContainerStatus]:
        """Return the containers that have an ID, by name."""
        statuses = [*self.status.init_container_statuses, *self.status.container_statuses]
        return {status.name: status for status in statuses if status.container_id}

    @cached_property
    def restarts_all(self) -> bool:
        return kubecontainer.should_all_containers_restart(self.pod, None, self.status)
