"""Build the messages of events about a pod's resize.

Go: pkg/kubelet/events/resize.go
"""

from __future__ import annotations

import msgspec

from pkg.api.core import v1
from pkg.api.v1 import pod as podutil
from pkg.apimachinery.runtime import codec


class _ContainerAllocation(msgspec.Struct, rename="camel"):
    name: str
    resources: v1.ResourceRequirements


class _PodResourceSummary(msgspec.Struct, rename="camel", kw_only=True):
    init_containers: list[_ContainerAllocation] | msgspec.UnsetType = msgspec.UNSET
    containers: list[_ContainerAllocation] | msgspec.UnsetType = msgspec.UNSET
    generation: int
    error: str | msgspec.UnsetType = msgspec.UNSET


def pod_resize_completed_msg(allocated_pod: v1.Pod, generation: int) -> str:
    """Return the message for a resize whose allocated resources have all been actuated."""
    return _pod_resize_message(allocated_pod, generation, "", "Pod resize completed")


def pod_resize_started_msg(allocated_pod: v1.Pod, generation: int) -> str:
    """Return the message for a resize that the node has accepted."""
    return _pod_resize_message(allocated_pod, generation, "", "Pod resize started")


def pod_resize_error_msg(allocated_pod: v1.Pod, generation: int, error_msg: str) -> str:
    """Return the message for an accepted resize that could not be actuated."""
    return _pod_resize_message(allocated_pod, generation, error_msg, "Pod resize error")


def pod_resize_pending_msg(pod: v1.Pod, reason: str, message: str, generation: int) -> str:
    """Return the message for a resize that the node has deferred or rejected."""
    return _pod_resize_message(pod, generation, message, f"Pod resize {reason}")


def _pod_resize_message(pod: v1.Pod, generation: int, error_msg: str, prefix: str) -> str:
    return f"{prefix}: {_make_resource_summary_from_spec(pod, generation, error_msg)}"


def _make_resource_summary_from_spec(pod: v1.Pod, generation: int, error: str) -> str:
    found: dict[podutil.ContainerType, list[_ContainerAllocation]] = {}
    for container, kind in podutil.container_iter(pod.spec, podutil.INIT_CONTAINERS | podutil.CONTAINERS):
        found.setdefault(kind, []).append(_ContainerAllocation(container.name, container.resources))
    summary = _PodResourceSummary(
        init_containers=found.get(podutil.INIT_CONTAINERS, msgspec.UNSET),
        containers=found.get(podutil.CONTAINERS, msgspec.UNSET),
        generation=generation,
        error=error or msgspec.UNSET,
    )
    return codec.encode_json(summary).decode()
