"""References to a container inside its pod, which events are recorded about.

Go: pkg/kubelet/container/ref.go
"""

from __future__ import annotations

from collections.abc import Sequence

from pkg.api.core import v1

# Begins the field path of containers that no spec names, as the sandbox's.
IMPLICIT_CONTAINER_PREFIX = "implicitly required container "


def generate_container_ref(pod: v1.Pod, container: v1.Container) -> v1.ObjectReference:
    """The reference to a container of the pod, by its place in the spec where it has one."""
    path = _field_path(pod, container)
    if path is None:
        path = IMPLICIT_CONTAINER_PREFIX + container.name
    return v1.ObjectReference(
        kind=pod.kind or "Pod",
        api_version=pod.api_version or "v1",
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        uid=pod.metadata.uid,
        resource_version=pod.metadata.resource_version,
        field_path=path,
    )


def _field_path(pod: v1.Pod, container: v1.Container) -> str | None:
    """Where in the pod's spec the container stands, or None."""
    lists: tuple[tuple[str, Sequence[v1.Container | v1.EphemeralContainer]], ...] = (
        ("containers", pod.spec.containers),
        ("initContainers", pod.spec.init_containers),
        ("ephemeralContainers", pod.spec.ephemeral_containers),
    )
    for field, containers in lists:
        for i, here in enumerate(containers):
            if here.name == container.name:
                return f"spec.{field}{{{here.name}}}" if here.name else f"spec.{field}[{i}]"
    return None
