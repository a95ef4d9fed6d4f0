"""Which container of which pod has an id.

Go: pkg/kubelet/cm/containermap
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from pkg.api.core import v1
from pkg.apimachinery import types

# Whether a pod's containers could be running, by its uid: also those of a pod that is not active any more.
CouldRunFunc = Callable[[types.UID], bool]


class ContainerRef(NamedTuple):
    """A container by its pod and name. Go: cmItem"""

    pod_uid: str
    container_name: str


class ContainerMap(dict[str, ContainerRef]):
    """Containers by id. Not safe from several threads at once."""

    def clone(self) -> ContainerMap:
        return ContainerMap(self)

    def add(self, pod_uid: str, container_name: str, container_id: str) -> None:
        self[container_id] = ContainerRef(pod_uid, container_name)

    def replace(self, pod_uid: str, container_name: str, container_id: str) -> None:
        """Add an id that the container has in place of all that it had before.

        DIVERGES (fault of Go): when a container gets a new id, its older ids are forgotten.
        Go: pkg/kubelet/cm/containermap/container_map.go, ContainerMap.Add: they stay until the pod is gone.
        Why: a container that crashes again and again leaves one more id in memory each time.
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
        """Remove all ids that these containers have, in one pass."""
        for container_id in [container_id for container_id, ref in self.items() if ref in refs]:
            self.remove_by_container_id(container_id)

    def get_container_id(self, pod_uid: str, container_name: str) -> str:
        """Raises LookupError for a container that is not in the map."""
        wanted = ContainerRef(pod_uid, container_name)
        for container_id, ref in self.items():
            if ref == wanted:
                return container_id
        raise LookupError(f"container {container_name} not in ContainerMap for pod {pod_uid}")

    def get_container_ref(self, container_id: str) -> ContainerRef:
        """Raises LookupError for an id that is not in the map."""
        if container_id not in self:
            raise LookupError(f"containerID {container_id} not in ContainerMap")
        return self[container_id]

    def visit(self, visitor: Callable[[str, str, str], None]) -> None:
        """Call visitor with the pod's uid, the container's name and its id, for each. It may remove entries."""
        for container_id, ref in list(self.items()):
            visitor(ref.pod_uid, ref.container_name, container_id)


def stale_containers(
    known: Iterable[ContainerRef], active_pods: Sequence[v1.Pod], could_run: CouldRunFunc
) -> list[ContainerRef]:
    """The containers that are of no active pod, in order. A pod that cannot be read in full may have any.

    In Go, removeStaleState of the CPU manager and that of the memory manager each do this.

    DIVERGES (fault of Go): a pod keeps its processors and its memory as long as its containers could run.
    Go: pkg/kubelet/cm/cpumanager/cpu_manager.go, (*manager).removeStaleState: a pod that is deleted by force, or while
    the kubelet is down, loses them at once.
    Why: a new pod would be promised alone what containers of the old one still use.
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
    """Whether the pod begins with this container, which is the first that managers are asked about at an admission.

    Only then do they look for stale containers; Go's managers look at each container of the pod.
    """
    containers = pod.spec.init_containers or pod.spec.containers
    return bool(containers) and containers[0].name == container.name


def is_last_container(pod: v1.Pod, container: v1.Container) -> bool:
    """Whether it is the last one that managers are asked about at an admission."""
    return bool(pod.spec.containers) and pod.spec.containers[-1].name == container.name
