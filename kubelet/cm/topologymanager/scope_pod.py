"""Align the resources of all containers of a pod together.

Go: pkg/kubelet/cm/topologymanager/scope_pod.go
"""

from __future__ import annotations

from collections.abc import Set

from kubelet import lifecycle, metrics
from kubelet.cm import admission
from kubelet.cm.topologymanager.errors import TopologyAffinityError
from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.policy import MergedHint, Policy, is_alignment_guaranteed
from kubelet.cm.topologymanager.scope import POD_TOPOLOGY_SCOPE, Scope, all_containers
from pkg import klog
from pkg.api.core import v1

_LABELS = (metrics.ALIGN_SCOPE_POD, metrics.ALIGNED_NUMA_NODE)


class PodScope(Scope):
    """Align a pod as a whole, so that all its containers get the same nodes."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(POD_TOPOLOGY_SCOPE, policy)
        # `_decided` maps a pod's UID to the hint for a pod that waits and may already have a part of its resources. The
        # field is guarded by _lock.
        self._decided: dict[str, TopologyHint] = {}

    def forget_all_but(self, pod_uids: Set[str]) -> None:
        super().forget_all_but(pod_uids)
        with self._lock:
            for uid in self._decided.keys() - pod_uids:
                del self._decided[uid]

    def admit(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        return self.result(self._admit_pod(pod))

    def _admit_pod(self, pod: v1.Pod) -> Exception | None:
        guaranteed = is_alignment_guaranteed(self.policy)
        try:
            merged = self._calculate_affinity(pod)
        except admission.Error as not_yet:
            return not_yet
        best_hint = merged.hint
        klog.info_s("Best TopologyHint", bestHint=best_hint, pod=klog.kobj(pod))
        if not merged.admit:
            if guaranteed:
                metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES_FAILURE.labels(*_LABELS).inc()
            return TopologyAffinityError()
        self._decide(pod, best_hint)
        for container in all_containers(pod):
            klog.info_s("Topology Affinity", bestHint=best_hint, pod=klog.kobj(pod), containerName=container.name)
            self.set_topology_hints(pod.metadata.uid, container.name, best_hint)
            if (err := self.allocate_aligned_resources(pod, container)) is not None:
                if not (isinstance(err, admission.Error) and err.wait):
                    self._decide(pod, None)
                return err
        self._decide(pod, None)
        if guaranteed:
            klog.v(4).info_s("Resource alignment at pod scope guaranteed", pod=klog.kobj(pod))
            metrics.CONTAINER_ALIGNED_COMPUTE_RESOURCES.labels(*_LABELS).inc()
        return None

    def _decide(self, pod: v1.Pod, hint: TopologyHint | None) -> None:
        """Keep the hint for the pod's next admission, or drop it if `hint` is None."""
        with self._lock:
            if hint is None:
                self._decided.pop(pod.metadata.uid, None)
            else:
                self._decided[pod.metadata.uid] = hint

    def accumulate_providers_hints(self, pod: v1.Pod) -> list[Hints]:
        """Return the hints of each provider for the pod."""
        providers_hints = []
        for provider in self.hint_providers:
            hints = provider.get_pod_topology_hints(pod)
            providers_hints.append(hints)
            klog.info_s("TopologyHints", hints=hints, pod=klog.kobj(pod))
        return providers_hints

    def _calculate_affinity(self, pod: v1.Pod) -> MergedHint:
        with self._lock:
            decided = self._decided.pop(pod.metadata.uid, None)
        if decided is not None:
            return MergedHint(decided, admit=True)
        providers_hints = self.accumulate_providers_hints(pod)
        merged = self.policy.merge(providers_hints)
        klog.info_s("PodTopologyHint", bestHint=merged.hint, pod=klog.kobj(pod))
        return merged
