"""Make references to API objects.

Go: k8s.io/client-go/tools/reference/ref.go
"""

from __future__ import annotations

from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1

_GROUPS = {
    "core": "",
    "node": "node.k8s.io",
    "storage": "storage.k8s.io",
    "policy": "policy",
    "coordination": "coordination.k8s.io",
    "certificates": "certificates.k8s.io",
    "authentication": "authentication.k8s.io",
    "authorization": "authorization.k8s.io",
}


def get_reference(obj: Any) -> v1.ObjectReference:
    """Return a reference to an API object, or the object itself if it is a reference.

    The reference contains the object's own kind and API version if they are set, or else those of its class. Raise
    ValueError if `obj` is not an API object.
    """
    if isinstance(obj, v1.ObjectReference):
        return obj
    metadata = getattr(obj, "metadata", None)
    if not isinstance(metadata, metav1.ObjectMeta):
        raise ValueError(f"cannot refer to {type(obj).__name__}, which is not an API object")
    api_version, kind = obj.api_version, obj.kind
    if not (api_version and kind):
        api_version, kind = _type_of(type(obj))
    return v1.ObjectReference(
        kind=kind,
        api_version=api_version,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def get_partial_reference(obj: Any, field_path: str) -> v1.ObjectReference:
    """Return a reference to a part of the object; raise ValueError as get_reference does."""
    ref = get_reference(obj)
    return v1.ObjectReference(
        kind=ref.kind,
        api_version=ref.api_version,
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        resource_version=ref.resource_version,
        field_path=field_path,
    )


def _type_of(type_: type) -> tuple[str, str]:
    """Return the apiVersion and kind for the class `pkg.api.GROUP.VERSION.types.KIND`, wherever `pkg` is installed."""
    match type_.__module__.split("."):
        case [*_, "pkg", "api", package, version, "types"] if package in _GROUPS:
            group = _GROUPS[package]
            return f"{group}/{version}" if group else version, type_.__name__
    raise ValueError(f"cannot refer to {type_.__name__}: unknown kind")
