"""Map container IDs to pods and container names.

Go: pkg/kubelet/cm/containermap
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from pkg.api.core import v1
from pkg.apimachinery import types

# Report whether the containers of the pod with this UID could be running, even if the pod is no longer active.
CouldRunFunc = Callable[[types.UID], bool]


class ContainerRef(NamedTuple):
    """Identify a container by the pod's UID and the container's name.

    Go: cmItem
    """

    pod_uid: str
    container_name: str


class ContainerMap(dict[str, ContainerRef]):
    """Map container IDs to containers. The class is not thread-safe."""

    def clone(self) -> ContainerMap:
        return ContainerMap(self)

    def add(self, pod_uid: str, container_name: str, container_id: str) -> None:
        self[container_id] = ContainerRef(pod_uid, container_name)

    def replace(self, pod_uid: str, container_name: str, container_id: str) -> None:
        """Add a container's new ID and remove all its earlier IDs.

        DIVERGES (fault of Go): when a container gets a new ID, the kubelet forgets its earlier IDs.
        Go: pkg/kubelet/cm/containermap/container_map.go, ContainerMap.Add: the earlier IDs stay until the pod is gone.
        Why: each crash of a container would leave one more ID in memory.
        Test: cpumanager/cpu_manager_test.py:test_container_that_starts_again_and_again_is_known_once,
        memorymanager/memory_manager_test.py:test_container_that_starts_again_and_again_is_known_once
        """
        replaced = [known for known, ref in self.items() if ref == (pod_uid, container_name)]
        for known in replaced:
            del self[known]
        self.add(pod_uid, container_name, container_id)

    def remove_by_container_id(self, container_id: str) -> None:
        self.pop(container_id, None)

    def remove_by_container_ref(self, pod_uid: str, container_name: str) -> None:
        try:
            self.remove_by_container_id(self.get_container_id(pod_uid, container_name))
        except LookupError:
            return

    def remove_by_container_refs(self, refs: Set[ContainerRef]) -> None:
        """Remove all IDs of these containers in one pass."""
        for container_id in [container_id for container_id, ref in self.items() if ref in refs]:
            self.remove_by_container_id(container_id)

    def get_container_id(self, pod_uid: str, container_name: str) -> str:
        """Return the ID of a container. Raise LookupError if the container is not in the map."""
        wanted = ContainerRef(pod_uid, container_name)
        for container_id, ref in self.items():
            if ref == wanted:
                return container_id
        raise LookupError(f"container {container_name} not in ContainerMap for pod {pod_uid}")

    def get_container_ref(self, container_id: str) -> ContainerRef:
        """Return the container with an ID. Raise LookupError if the ID is not in the map."""
        if container_id not in self:
            raise LookupError(f"containerID {container_id} not in ContainerMap")
        return self[container_id]

    def visit(self, visitor: Callable[[str, str, str], None]) -> None:
        """Call `visitor` for each entry, with the pod's UID, the container's name and its ID. It may remove entries."""
        for container_id, ref in list(self.items()):
            visitor(ref.pod_uid, ref.container_name, container_id)


def stale_containers(
    known: Iterable[ContainerRef], active_pods: Sequence[v1.Pod], could_run: CouldRunFunc
) -> list[ContainerRef]:
    """List, in order, the containers that belong to no active pod.

    A pod that could not be read completely may have any container, so its containers are not stale. In Go,
    removeStaleState exists both in the CPU manager and in the memory manager.

    DIVERGES (fault of Go): a pod keeps its processors and its memory as long as its containers could run.
    Go: pkg/kubelet/cm/cpumanager/cpu_manager.go, (*manager).removeStaleState: a pod that is deleted by force, or while
    the kubelet is down, loses them at once.
    Why: a new pod would be promised exclusive use of what containers of the old pod still use.
    Test: cpumanager/cpu_manager_test.py:test_pod_that_is_ending_keeps_its_processors,
    memorymanager/memory_manager_test.py:test_pod_that_is_ending_keeps_its_memory
    """
    pods: dict[str, v1.Pod] = {pod.metadata.uid: pod for pod in active_pods}
    active = {
        ContainerRef(pod.metadata.uid, container.name)
        for pod in active_pods
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    found = []
    for ref in sorted(set(known) - active):
        pod = pods.get(ref.pod_uid)
        if not (could_run(types.UID(ref.pod_uid)) if pod is None else isinstance(pod, v1.PartialPod)):
            found.append(ref)
    return found


def is_first_container(pod: v1.Pod, container: v1.Container) -> bool:
    """Report whether this is the pod's first container, for which an admission asks the managers first.

    The managers look for stale containers only then; Go's managers look at each container of the pod.
    """
    containers = pod.spec.init_containers or pod.spec.containers
    return bool(containers) and containers[0].name == container.name


def is_last_container(pod: v1.Pod, container: v1.Container) -> bool:
    """Report whether this is the pod's last container, for which an admission asks the managers last."""
    return bool(pod.spec.containers) and pod.spec.containers[-1].name == container.name
