"""Define the scope of an alignment: one container, or a whole pod.

Go: pkg/kubelet/cm/topologymanager/scope.go
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Set

from kubelet import lifecycle, metrics
from kubelet.cm import admission, containermap
from kubelet.cm.topologymanager.hints import HintProvider, TopologyHint
from kubelet.cm.topologymanager.policy import Policy
from pkg import klog
from pkg.api.core import v1

CONTAINER_TOPOLOGY_SCOPE = "container"
POD_TOPOLOGY_SCOPE = "pod"
# NONE_TOPOLOGY_SCOPE is the scope of the policy none.
NONE_TOPOLOGY_SCOPE = "none"


class Scope(ABC):
    """Hold what all scopes share: the hint providers and the merged hints. All methods are thread-safe."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name = name
        self.policy = policy
        self.hint_providers: list[HintProvider] = []
        self._lock = threading.Lock()  # This lock guards the fields below.
        # The keys are the pod's UID and the container's name.
        self._pod_topology_hints: dict[str, dict[str, TopologyHint]] = {}
        self._pod_map = containermap.ContainerMap()

    def name(self) -> str:
        return self._name

    @abstractmethod
    def admit(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Choose nodes for the pod's resources, and have the providers allocate them."""

    def get_policy(self) -> Policy:
        return self.policy

    def get_affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        with self._lock:
            return self._pod_topology_hints.get(pod_uid, {}).get(container_name, TopologyHint())

    def set_topology_hints(self, pod_uid: str, container_name: str, hint: TopologyHint) -> None:
        with self._lock:
            self._pod_topology_hints.setdefault(pod_uid, {})[container_name] = hint

    def forget_all_but(self, pod_uids: Set[str]) -> None:
        """Forget the hints and the containers of all other pods.

        DIVERGES (fault of Go): the kubelet forgets a pod's NUMA nodes when the pod is gone or was rejected.
        Go: pkg/kubelet/cm/topologymanager/scope.go, (*scope).RemoveContainer: it forgets them only when a container
        ends.
        Why: every pod that is rejected, or ends before it has containers, would permanently stay in memory.
        Test: topology_manager_test.py:test_what_was_decided_is_forgotten_with_the_pod,
        topology_manager_test.py:test_what_was_decided_for_a_pod_that_is_turned_away_is_forgotten
        """
        with self._lock:
            for uid in self._pod_topology_hints.keys() - pod_uids:
                del self._pod_topology_hints[uid]
            for container_id in [id for id, ref in self._pod_map.items() if ref.pod_uid not in pod_uids]:
                del self._pod_map[container_id]

    def add_hint_provider(self, provider: HintProvider) -> None:
        """Add a hint provider. Providers are called in the order in which they were added.

        Call this only before the first admission.
        """
        self.hint_providers.append(provider)

    def add_container(self, pod: v1.Pod, container: v1.Container, container_id: str) -> None:
        """Record the ID of a container of an admitted pod."""
        with self._lock:
            self._pod_map.add(pod.metadata.uid, container.name, container_id)

    def remove_container(self, container_id: str) -> None:
        """Forget a container that is gone, and its hint unless a new container has replaced it meanwhile."""
        klog.info_s("RemoveContainer", containerID=container_id)
        with self._lock:
            try:
                pod_uid, container_name = self._pod_map.get_container_ref(container_id)
            except LookupError:
                return
            self._pod_map.remove_by_container_id(container_id)
            try:
                self._pod_map.get_container_id(pod_uid, container_name)
            except LookupError:
                self._forget_locked(pod_uid, container_name)

    def _forget_locked(self, pod_uid: str, container_name: str) -> None:
        hints = self._pod_topology_hints.get(pod_uid, {})
        hints.pop(container_name, None)
        if not hints:
            self._pod_topology_hints.pop(pod_uid, None)

    def admit_policy_none(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        """Have the providers allocate the pod's resources on any nodes."""
        for container in all_containers(pod):
            if (err := self.allocate_aligned_resources(pod, container)) is not None:
                return admission.get_pod_admit_result(err)
        return admission.get_pod_admit_result(None)

    def result(self, err: Exception | None) -> lifecycle.PodAdmitResult:
        """Return the result of an admission, and count a rejection."""
        result = admission.get_pod_admit_result(err)
        if not result.admit and not result.wait:
            metrics.TOPOLOGY_MANAGER_ADMISSION_ERRORS_TOTAL.inc()
        return result

    def allocate_aligned_resources(self, pod: v1.Pod, container: v1.Container) -> Exception | None:
        """Have each provider allocate the container's resources; return the error of the first one that fails.

        Raise lifecycle.ACCIDENTS.
        """
        try:
            for provider in self.hint_providers:
                provider.allocate(pod, container)
        except Exception as err:
            # Any error of a provider becomes the result for this pod, and must not affect other pods. The pod is
            # rejected, so its hints are forgotten; see forget_all_but.
            with self._lock:
                self._pod_topology_hints.pop(pod.metadata.uid, None)
            if isinstance(err, lifecycle.ACCIDENTS):
                raise
            if not isinstance(err, admission.Error):
                trace = klog.stacktrace(err)
                name = container.name
                klog.error_s(err, "Allocation failed", pod=klog.kobj(pod), containerName=name, stacktrace=trace)
            return err
        return None


def all_containers(pod: v1.Pod) -> Iterator[v1.Container]:
    """Yield the init containers and the regular containers, in the order in which they start."""
    return itertools.chain(pod.spec.init_containers, pod.spec.containers)
