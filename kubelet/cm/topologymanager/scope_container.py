"""Align the resources of each container separately.

Go: pkg/kubelet/cm/topologymanager/scope_container.go
"""

from __future__ import annotations

from kubelet import lifecycle, metrics
from kubelet.cm import admission
from kubelet.cm.topologymanager.errors import TopologyAffinityError
from kubelet.cm.topologymanager.hints import Hints
from kubelet.cm.topologymanager.policy import MergedHint, Policy, is_alignment_guaranteed
from kubelet.cm.topologymanager.scope import CONTAINER_TOPOLOGY_SCOPE, Scope, all_containers
from pkg import klog
from pkg.api.core import v1

_LABELS = (metrics.ALIGN_SCOPE_CONTAINER, metrics.ALIGNED_NUMA_NODE)


class ContainerScope(Scope):
    """Align each container by itself, so that the containers of a pod may get different nodes."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(CONTAINER_TOPOLOGY_SCOPE, policy)

    def admit(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        for container in all_containers(pod):
            if (err := self._admit_container(pod, container)) is not None:
                return self.result(err)
        return self.result(None)

    def _admit_container(self, pod: v1.Pod, container: v1.Container) -> Exception | None:
        guaranteed = is_alignment_guaranteed(self.policy)
        try:
            merged = self._calculate_affinity(pod, container)
        except admission.Error as not_yet:
            return not_yet
        best_hint = merged.hint
        klog.info_s("Best TopologyHint", bestHint=best_hint, pod=klog.kobj(pod), containerName=container.name)
        if not merged.admit:
            if guaranteed:
                metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE.labels(*_LABELS).inc()
            return TopologyAffinityError()
        klog.info_s("Topology Affinity", bestHint=best_hint, pod=klog.kobj(pod), containerName=container.name)
        self.set_topology_hints(pod.metadata.uid, container.name, best_hint)
        if (err := self.allocate_aligned_resources(pod, container)) is not None:
            return err
        if guaranteed:
            klog.v(4).info_s("Resource alignment at container scope guaranteed", pod=klog.kobj(pod))
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_LABELS).inc()
        return None

    def accumulate_providers_hints(self, pod: v1.Pod, container: v1.Container) -> list[Hints]:
        """Return the hints of each provider for the container."""
        providers_hints = []
        for provider in self.hint_providers:
            hints = provider.get_topology_hints(pod, container)
            providers_hints.append(hints)
            klog.info_s("TopologyHints", hints=hints, pod=klog.kobj(pod), containerName=container.name)
        return providers_hints

    def _calculate_affinity(self, pod: v1.Pod, container: v1.Container) -> MergedHint:
        providers_hints = self.accumulate_providers_hints(pod, container)
        merged = self.policy.merge(providers_hints)
        klog.info_s("ContainerTopologyHint", bestHint=merged.hint, pod=klog.kobj(pod), containerName=container.name)
        return merged
