"""Create persistent volumes and the claims that they are bound to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes.client import V1PersistentVolumeClaim

from framework.cluster_client import TIMEOUT, Namespace
from framework.pods import Manifest
from framework.waiting import wait_for


def volume_name(namespace: Namespace, claim: str) -> str:
    return f"{namespace.name}-{claim}"


def on_node(name: str) -> dict[str, Any]:
    """Return a node affinity for one node. Every local volume must have a node affinity."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]
    return {"required": {"nodeSelectorTerms": terms}}


def put_volume(
    namespace: Namespace, claim: str, source: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    """Create a volume that only the claim of this name can bind. The volume is deleted together with the claim."""
    volume = {
        "metadata": {"name": volume_name(namespace, claim), "annotations": annotations or {}},
        "spec": {
            "capacity": {"storage": "16Mi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": namespace.name, "name": claim},
            "persistentVolumeReclaimPolicy": "Delete",
            **source,
            **spec,
        },
    }
    namespace.core.create_persistent_volume(volume)


def put_claim(namespace: Namespace, name: str, **spec: Any) -> None:
    claim = {"metadata": {"name": name}, "spec": {**claim_spec(), **spec}}
    namespace.core.create_namespaced_persistent_volume_claim(namespace.name, claim)


def claim_spec() -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}, "storageClassName": ""}


def put_claimed(
    namespace: Namespace, claim: str, source: dict[str, Any], mode: str = "Filesystem", **spec: Any
) -> None:
    """Create a volume and its claim."""
    put_volume(namespace, claim, source, volumeMode=mode, **spec)
    both = {name: spec[name] for name in ("accessModes", "storageClassName") if name in spec}
    put_claim(namespace, claim, volumeMode=mode, volumeName=volume_name(namespace, claim), **both)


def wait_for_claim(
    namespace: Namespace,
    name: str,
    what: str,
    condition: Callable[[V1PersistentVolumeClaim], object],
    timeout: float = TIMEOUT,
) -> V1PersistentVolumeClaim:
    def look() -> V1PersistentVolumeClaim | None:
        found = namespace.core.read_namespaced_persistent_volume_claim(name, namespace.name)
        return found if condition(found) else None

    def describe() -> object:
        return namespace.core.read_namespaced_persistent_volume_claim(name, namespace.name)

    found = wait_for(f"claim {name}: {what}", look, timeout, describe)
    assert found is not None
    return found


def grow(namespace: Namespace, claim: str, size: str) -> None:
    """Request a larger volume. The claim's storage class must allow expansion."""
    patch = {"spec": {"resources": {"requests": {"storage": size}}}}
    namespace.core.patch_namespaced_persistent_volume_claim(claim, namespace.name, patch)


def with_claim(manifest: Manifest, claim: str = "", **more: object) -> Manifest:
    """Add the claim to the pod as its volume `v`. The claim's name is that of the pod unless another is given."""
    source = {"claimName": claim or manifest["metadata"]["name"], **more}
    manifest["spec"].setdefault("volumes", []).append({"name": "v", "persistentVolumeClaim": source})
    return manifest
