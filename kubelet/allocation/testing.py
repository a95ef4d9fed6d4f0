"""Define a fake of what the pod workers need from the allocation manager."""

from __future__ import annotations

from kubelet.allocation import AllocatedPod
from pkg.api.core import v1
from pkg.apimachinery import types


class FakeAllocationManager:
    """Return each pod with the resources that it requests, except for the pods in `given`, which are keyed by UID."""

    def __init__(self) -> None:
        self.given: dict[types.UID, v1.Pod] = {}

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        given = self.given.get(pod.metadata.uid)
        return AllocatedPod(pod, differs=False) if given is None else AllocatedPod(given, differs=True)
