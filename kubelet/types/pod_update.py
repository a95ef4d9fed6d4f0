"""What pod sources tell the kubelet, and what a pod's annotations say about its source.

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
    """What happened to the pods of an update. SET only travels inside PodConfig."""

    SET = 0
    ADD = 1
    DELETE = 2
    REMOVE = 3
    UPDATE = 4
    RECONCILE = 5


SET = PodOperation.SET  # all pods of the source
ADD = PodOperation.ADD  # new to this source
DELETE = PodOperation.DELETE  # to be deleted gracefully
REMOVE = PodOperation.REMOVE  # gone from the source
UPDATE = PodOperation.UPDATE
RECONCILE = PodOperation.RECONCILE  # the source shows another status than the kubelet's

FILE_SOURCE = "file"
HTTP_SOURCE = "http"
APISERVER_SOURCE = "api"
ALL_SOURCE = "*"

NAMESPACE_DEFAULT = v1.NAMESPACE_DEFAULT


@dataclass(slots=True)
class PodUpdate:
    """An operation on a set of pods of one source. With SET, the pods are all that the source has."""

    pods: list[v1.Pod] = field(default_factory=list)
    op: PodOperation = SET
    source: str = ""
    # Whether all pods of the source have been told by now: then it is known which pods nobody wants.
    complete: bool = field(default=True, compare=False)


def get_validated_sources(sources: Iterable[str]) -> list[str]:
    """The sources named, "*" meaning all; raises ValueError for an unknown one."""
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
    """The source named by the pod's annotation; raises ValueError if there is none."""
    source = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION_KEY)
    if source is None:
        raise ValueError(f'cannot get source of pod "{pod.metadata.uid}"')
    return source


class SyncPodType(enum.IntEnum):
    """Why a pod is synced."""

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
    """Whether the pod stands in the API server for a static pod."""
    return CONFIG_MIRROR_ANNOTATION_KEY in pod.metadata.annotations


def is_static_pod(pod: v1.Pod) -> bool:
    """Whether the pod comes from a file or URL."""
    source = pod.metadata.annotations.get(CONFIG_SOURCE_ANNOTATION_KEY)
    return source is not None and source != APISERVER_SOURCE


def is_critical_pod(pod: v1.Pod) -> bool:
    """Whether the pod must be admitted before others: static, mirror, or of a system priority."""
    if is_static_pod(pod) or is_mirror_pod(pod):
        return True
    return pod.spec.priority is not None and is_critical_pod_based_on_priority(pod.spec.priority)


def preemptable(preemptor: v1.Pod, preemptee: v1.Pod) -> bool:
    """Whether preemptee may be evicted to make room for preemptor."""
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
    """Whether the pod has a sidecar."""
    return any(podutil.is_restartable_init_container(c) for c in pod.spec.init_containers)
