"""Define the updates from pod sources, and find the source of a pod in its annotations.

Go: pkg/kubelet/types/pod_update.go
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil

CONFIG_SOURCE_ANNOTATION_KEY = "kubernetes.io/config.source"
CONFIG_MIRROR_ANNOTATION_KEY = v1.MIRROR_POD_ANNOTATION_KEY
CONFIG_FIRST_SEEN_ANNOTATION_KEY = "kubernetes.io/config.seen"
CONFIG_HASH_ANNOTATION_KEY = "kubernetes.io/config.hash"

# Go: pkg/apis/scheduling/types.go
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
SYSTEM_NODE_CRITICAL = "system-node-critical"


class PodOperation(enum.IntEnum):
    """Define the operations of updates. Only PodConfig uses SET."""

    SET = 0
    ADD = 1
    DELETE = 2
    REMOVE = 3
    UPDATE = 4
    RECONCILE = 5


SET = PodOperation.SET  # The update has all pods of the source.
ADD = PodOperation.ADD  # The pods are new to this source.
DELETE = PodOperation.DELETE  # The pods are to be deleted gracefully.
REMOVE = PodOperation.REMOVE  # The pods are gone from the source.
UPDATE = PodOperation.UPDATE
RECONCILE = PodOperation.RECONCILE  # The source has another status than the kubelet.

FILE_SOURCE = "file"
HTTP_SOURCE = "http"
APISERVER_SOURCE = "api"
ALL_SOURCE = "*"

NAMESPACE_DEFAULT = v1.NAMESPACE_DEFAULT


@dataclass(slots=True)
class PodUpdate:
    """Describe an operation on a set of pods of a source. With SET, these are all pods of the source."""

    pods: list[v1.Pod] = field(default_factory=list)
    op: PodOperation = SET
    source: str = ""
    # If set, the kubelet has received all pods of the source, so it can identify the pods that the source no longer
    # has.
    complete: bool = field(default=True, compare=False)


def get_validated_sources(sources: Iterable[str]) -> list[str]:
    """Return the named sources, where "*" stands for all. Raise ValueError for an unknown source."""
    validated: list[str] = []
    for source in sources:
        match source:
            case "*":
                return [FILE_SOURCE, HTTP_SOURCE, APISERVER_SOURCE]
            case "file" | "http" | "api":
                validated.append(source)
            case "":
                pass
            case _:
                raise ValueError(f'unknown pod source "{source}"')
    return validated


def get_pod_source(pod: v1.Pod) -> str:
    """Return the source from the pod's annotation. Raise ValueError if there is none."""
    source = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION_KEY)
    if source is None:
        raise ValueError(f'cannot get source of pod "{pod.metadata.uid}"')
    return source


class SyncPodType(enum.IntEnum):
    """Define the reasons for a sync of a pod."""

    SYNC = 0
    UPDATE = 1
    CREATE = 2
    KILL = 3

    def __str__(self) -> str:
        return self.name.lower()


SYNC_POD_SYNC = SyncPodType.SYNC
SYNC_POD_UPDATE = SyncPodType.UPDATE
SYNC_POD_CREATE = SyncPodType.CREATE
SYNC_POD_KILL = SyncPodType.KILL


def is_mirror_pod(pod: v1.Pod) -> bool:
    """Report whether the pod is a mirror pod: the API server's copy of a static pod."""
    return CONFIG_MIRROR_ANNOTATION_KEY in pod.metadata.annotations


def is_static_pod(pod: v1.Pod) -> bool:
    """Report whether the pod comes from a file or a URL."""
    source = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION_KEY)
    return source is not None and source != APISERVER_SOURCE


def is_critical_pod(pod: v1.Pod) -> bool:
    """Report whether the pod is critical: it is static, is a mirror pod, or has a system priority."""
    if is_static_pod(pod) or is_mirror_pod(pod):
        return True
    return pod.spec.priority is not None and is_critical_pod_based_on_priority(pod.spec.priority)


def preemptable(preemptor: v1.Pod, preemptee: v1.Pod) -> bool:
    """Report whether preemptee may be evicted to make room for preemptor."""
    if is_critical_pod(preemptor) and not is_critical_pod(preemptee):
        return True
    if preemptor.spec.priority is None or preemptee.spec.priority is None:
        return False
    return preemptor.spec.priority > preemptee.spec.priority


def is_critical_pod_based_on_priority(priority: int) -> bool:
    return priority >= SYSTEM_CRITICAL_PRIORITY


def is_node_critical_pod(pod: v1.Pod) -> bool:
    return is_critical_pod(pod) and pod.spec.priority_class_name == SYSTEM_NODE_CRITICAL


def has_restartable_init_container(pod: v1.Pod) -> bool:
    """Report whether the pod has a sidecar."""
    return any(podutil.is_restartable_init_container(c) for c in pod.spec.init_containers)
