"""Build references to containers in pods, for events.

Go: pkg/kubelet/container/ref.go
"""

from __future__ import annotations

from collections.abc import Sequence

from pkg.api.core import v1

# The field path of a container that is not in the spec, such as the sandbox, begins with this prefix.
IMPLICIT_CONTAINER_PREFIX = "implicitly required container "


def generate_container_ref(pod: v1.Pod, container: v1.Container) -> v1.ObjectReference:
    """Return the reference to a container of the pod, with its field path in the spec if it has one."""
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
    """Return the field path of the container in the pod's spec, or None."""
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
