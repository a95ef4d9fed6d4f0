"""Iterate over the containers of a pod, and convert field names for the downward API.

Go: pkg/apis/core/pods/helpers.go
"""

from __future__ import annotations

from collections.abc import Iterator

from pkg import fieldpath
from pkg.api.core import v1
from pkg.apimachinery.util.validation import field

_LABELS = frozenset(
    (
        "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
        "spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName",
        "status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
    )
)  # fmt: skip


def containers_with_path(
    spec: v1.PodSpec, spec_path: field.Path
) -> Iterator[tuple[v1.Container | v1.EphemeralContainer, field.Path]]:
    """Yield all containers with their paths: first init containers, then regular and ephemeral ones.

    Go: VisitContainersWithPath, whose visitor ends the walk by its result; here the caller leaves the loop
    """
    for i, init_container in enumerate(spec.init_containers):
        yield init_container, spec_path.child("initContainers").index(i)
    for i, container in enumerate(spec.containers):
        yield container, spec_path.child("containers").index(i)
    for i, ephemeral_container in enumerate(spec.ephemeral_containers):
        yield ephemeral_container, spec_path.child("ephemeralContainers").index(i)


def convert_downward_api_field_label(version: str, label: str, value: str) -> tuple[str, str]:
    """Return the current name of the field label, and the value.

    Raise ValueError for a field that pods do not expose.
    """
    if version != "v1":
        raise ValueError(f"unsupported pod version: {version}")
    if (split := fieldpath.split_maybe_subscripted_path(label)) is not None:
        path, _ = split
        if path not in ("metadata.annotations", "metadata.labels"):
            raise ValueError(f"field label does not support subscript: {label}")
        return label, value
    if label == "spec.host":  # Very old clients send this label.
        return "spec.nodeName", value
    if label not in _LABELS:
        raise ValueError(f"field label not supported: {label}")
    return label, value
