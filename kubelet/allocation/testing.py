"""What pods were given, as far as the pod workers ask."""

from __future__ import annotations

from kubelet.allocation import AllocatedPod
from pkg.api.core import v1
from pkg.apimachinery import types


class FakeAllocationManager:
    """Every pod was given what it wants, but for those by uid in `given`."""

    def __init__(self) -> None:
        self.given: dict[types.UID, v1.Pod] = {}

    def update_pod_from_allocation(self, pod: v1.Pod) -> AllocatedPod:
        given = self.given.get(pod.metadata.uid)
        return AllocatedPod(pod, differs=False) if given is None else AllocatedPod(given, differs=True)
