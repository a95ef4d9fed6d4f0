"""Find the objects that a pod or a volume refers to, which a node that runs the pod has to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# These volume sources refer to a secret, in the named field.
_SECRET_REFERENCES = {
    "cephfs": "secretRef",
    "cinder": "secretRef",
    "flexVolume": "secretRef",
    "iscsi": "secretRef",
    "rbd": "secretRef",
    "scaleIO": "secretRef",
    "storageos": "secretRef",
    "csi": "nodePublishSecretRef",
}
# A kubelet, not a controller, passes these secrets of a volume to the CSI driver.
_CSI_NODE_SECRETS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")

# These volume sources make a pod refer to API objects of the given kinds.
_API_VOLUMES = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_API_PROJECTIONS = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


def is_mirror(pod: Object) -> bool:
    return MIRROR_ANNOTATION in (pod["metadata"].get("annotations") or {})


def containers(pod: Object) -> Iterator[Object]:
    """Yield all containers of all kinds."""
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or []


def volumes(pod: Object) -> list[Object]:
    return (pod.get("spec") or {}).get("volumes") or []


def secret_names(pod: Object) -> set[str]:
    """Return the secrets in the pod's namespace that the pod refers to."""
    spec = pod.get("spec") or {}
    names = {each.get("name") for each in spec.get("imagePullSecrets") or []}
    names |= set(_names_in_environment(pod, "secretKeyRef", "secretRef"))
    for volume in volumes(pod):
        names.add((volume.get("secret") or {}).get("secretName"))
        names.add((volume.get("azureFile") or {}).get("secretName"))
        names |= {(each.get("secret") or {}).get("name") for each in _projections(volume)}
        for source, field in _SECRET_REFERENCES.items():
            names.add(((volume.get(source) or {}).get(field) or {}).get("name"))
    return {name for name in names if name}


def config_map_names(pod: Object) -> set[str]:
    """Return the config maps in the pod's namespace that the pod refers to."""
    names: set[Any] = set(_names_in_environment(pod, "configMapKeyRef", "configMapRef"))
    for volume in volumes(pod):
        names.add((volume.get("configMap") or {}).get("name"))
        names |= {(each.get("configMap") or {}).get("name") for each in _projections(volume)}
    return {name for name in names if name}


def claim_names(pod: Object) -> set[str]:
    """Return the persistent volume claims that the pod refers to, including those that are created for the pod."""
    names = set()
    for volume in volumes(pod):
        if claim := volume.get("persistentVolumeClaim"):
            names.add(claim.get("claimName"))
        elif volume.get("ephemeral"):
            names.add(f"{pod['metadata']['name']}-{volume['name']}")
    return {name for name in names if name}


def resource_claim_names(pod: Object) -> set[str]:
    """Return the resource claims of the pod, including those that are created for the pod."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or []}
    names = {(status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")}
    for claim in (pod.get("spec") or {}).get("resourceClaims") or []:
        names.add(claim.get("resourceClaimName") or made.get(claim["name"]))
    return {name for name in names if name}


def volume_secrets(volume: Object) -> set[tuple[str, str]]:
    """Return the secrets, by namespace and name, that a kubelet needs for a persistent volume."""
    spec = volume.get("spec") or {}
    claim_namespace = (spec.get("claimRef") or {}).get("namespace", "")
    found = set()
    if azure := spec.get("azureFile"):
        found.add((azure.get("secretNamespace") or claim_namespace, azure.get("secretName")))
    for source in _SECRET_REFERENCES:
        fields = _CSI_NODE_SECRETS if source == "csi" else ("secretRef",)
        for field in fields:
            reference = (spec.get(source) or {}).get(field) or {}
            found.add((reference.get("namespace") or claim_namespace, reference.get("name")))
    return {(namespace, name) for namespace, name in found if name}


def api_references(pod: Object) -> str:
    """Return the first kind of API object that a pod refers to, in upstream's words, or "" if there is none."""
    spec = pod.get("spec") or {}
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if secret_names(pod):
        return "secrets"
    if config_map_names(pod):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next(filter(None, map(_api_reference_of_volume, volumes(pod))), "")


def _api_reference_of_volume(volume: Object) -> str:
    for source, words in _API_VOLUMES.items():
        if source in volume:
            return words
    for projection in _projections(volume):
        for source, words in _API_PROJECTIONS.items():
            if source in projection:
                return words
    return ""


def _projections(volume: Object) -> list[Object]:
    return (volume.get("projected") or {}).get("sources") or []


def _names_in_environment(pod: Object, key_reference: str, reference: str) -> Iterator[str]:
    for container in containers(pod):
        for variable in container.get("env") or []:
            if found := (variable.get("valueFrom") or {}).get(key_reference):
                yield found.get("name", "")
        for source in container.get("envFrom") or []:
            if found := source.get(reference):
                yield found.get("name", "")
