"""Define fakes of the status manager and of its dependencies.

Go: pkg/kubelet/status/testing
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pkg.api.core import v1
from pkg.apimachinery import types


@dataclass
class FakePodDeletionSafetyProvider:
    """Return the value of `has_running`."""

    has_running: bool = False

    def pod_could_have_running_containers(self, pod: v1.Pod) -> bool:
        return self.has_running


@dataclass
class FakePodStatusProvider:
    """Return statuses from a dict by UID."""

    statuses: dict[types.UID, v1.PodStatus] = field(default_factory=dict)

    def get_pod_status(self, uid: types.UID) -> v1.PodStatus | None:
        return self.statuses.get(uid)


@dataclass
class FakePodStartupLatencyStateHelper:
    """Record the UIDs of the pods in all calls."""

    updated: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def record_status_updated(self, pod: v1.Pod) -> None:
        self.updated.append(pod.metadata.uid)

    def delete_pod_startup_state(self, pod_uid: types.UID) -> None:
        self.deleted.append(pod_uid)
