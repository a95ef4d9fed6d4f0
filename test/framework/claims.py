"""Persistent volumes and claims that are made for each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framework.cluster_client import TIMEOUT, Namespace
from framework.pods import Manifest
from framework.waiting import wait_for
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.runtime import codec


def volume_name(namespace: Namespace, claim: str) -> str:
    return f"{namespace.name}-{claim}"


def on_node(name: str) -> dict[str, Any]:
    """A term of node affinity, as local volumes have to have one."""
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]
    return {"required": {"nodeSelectorTerms": terms}}


def put_volume(
    namespace: Namespace, claim: str, source: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> None:
    """Make a volume that only the claim of this name gets; it goes with the claim."""
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
    made = codec.convert(volume, v1.PersistentVolume)
    namespace.client.core_v1.persistent_volumes().create(namespace.ctx, made)


def put_claim(namespace: Namespace, name: str, **spec: Any) -> None:
    metadata = {"name": name, "namespace": namespace.name}
    claim = {"metadata": metadata, "spec": {**claim_spec(), **spec}}
    made = codec.convert(claim, v1.PersistentVolumeClaim)
    namespace.client.core_v1.persistent_volume_claims(namespace.name).create(namespace.ctx, made)


def claim_spec() -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "16Mi"}}, "storageClassName": ""}


def put_claimed(
    namespace: Namespace, claim: str, source: dict[str, Any], mode: str = "Filesystem", **spec: Any
) -> None:
    """Make a volume, and its claim."""
    put_volume(namespace, claim, source, volumeMode=mode, **spec)
    both = {name: spec[name] for name in ("accessModes", "storageClassName") if name in spec}
    put_claim(namespace, claim, volumeMode=mode, volumeName=volume_name(namespace, claim), **both)


def get_claim(namespace: Namespace, name: str) -> v1.PersistentVolumeClaim:
    return namespace.client.core_v1.persistent_volume_claims(namespace.name).get(namespace.ctx, name)


def wait_for_claim(
    namespace: Namespace,
    name: str,
    what: str,
    condition: Callable[[v1.PersistentVolumeClaim], object],
    timeout: float = TIMEOUT,
) -> v1.PersistentVolumeClaim:
    def look() -> v1.PersistentVolumeClaim | None:
        found = get_claim(namespace, name)
        return found if condition(found) else None

    def describe() -> object:
        return codec.to_builtins(get_claim(namespace, name))

    found = wait_for(f"claim {name}: {what}", look, timeout, describe)
    assert found is not None
    return found


def grow(namespace: Namespace, claim: str, size: str) -> None:
    """Ask for more; only claims of a class that allows it may."""
    patch = codec.encode_json({"spec": {"resources": {"requests": {"storage": size}}}})
    claims = namespace.client.core_v1.persistent_volume_claims(namespace.name)
    claims.patch(namespace.ctx, claim, types.PatchType.STRATEGIC_MERGE, patch)


def with_claim(manifest: Manifest, claim: str = "", **more: object) -> Manifest:
    """Let a pod have a claim, of its own name if no other is given, as its volume `v`."""
    source = {"claimName": claim or manifest["metadata"]["name"], **more}
    manifest["spec"].setdefault("volumes", []).append({"name": "v", "persistentVolumeClaim": source})
    return manifest
