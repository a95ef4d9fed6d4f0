"""Fakes of what the status manager gives and needs.

Go: pkg/kubelet/status/testing
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kubelet import container as kubecontainer
from pkg import golang
from pkg.api.core import v1


@dataclass
class FakePodDeletionSafetyProvider:
    """Says what has_running is set to."""

    has_running: bool = False

    def pod_could_have_running_containers(self, pod: v1.Pod) -> bool:
        return self.has_running


@dataclass
class FakePodStatusProvider:
    """Answers from a dict by uid."""

    statuses: dict[str, v1.PodStatus] = field(default_factory=dict)

    def get_pod_status(self, uid: str) -> tuple[v1.PodStatus, bool]:
        return self.statuses.get(uid, v1.PodStatus()), uid in self.statuses


class FakeManager(FakePodStatusProvider):
    """Stores what it is given and records the calls, as (name, uid, …)."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[object, ...]] = []

    def start(self, ctx: golang.Context) -> None:
        self.calls.append(("start",))

    def set_pod_status(self, pod: v1.Pod, status: v1.PodStatus) -> tuple[v1.PodStatus, bool]:
        self.calls.append(("set_pod_status", pod.metadata.uid))
        changed = self.statuses.get(pod.metadata.uid) != status
        self.statuses[pod.metadata.uid] = status
        return status, changed

    def set_container_readiness(self, pod_uid: str, container_id: kubecontainer.ContainerID, ready: bool) -> None:
        self.calls.append(("set_container_readiness", pod_uid, container_id, ready))

    def set_container_startup(self, pod_uid: str, container_id: kubecontainer.ContainerID, started: bool) -> None:
        self.calls.append(("set_container_startup", pod_uid, container_id, started))

    def terminate_pod(self, pod: v1.Pod) -> None:
        self.calls.append(("terminate_pod", pod.metadata.uid))

    def remove_orphaned_statuses(self, pod_uids: set[str]) -> None:
        self.calls.append(("remove_orphaned_statuses", frozenset(pod_uids)))
        self.statuses = {uid: status for uid, status in self.statuses.items() if uid in pod_uids}


@dataclass
class FakePodStartupLatencyStateHelper:
    """Records the uids it is told of."""

    updated: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def record_status_updated(self, pod: v1.Pod) -> None:
        self.updated.append(pod.metadata.uid)

    def delete_pod_startup_state(self, pod_uid: str) -> None:
        self.deleted.append(pod_uid)
