"""What other objects a pod or a volume refers to: what a node that runs the pod has to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Object = Mapping[str, Any]

MIRROR_ANNOTATION = "kubernetes.io/config.mirror"

# Volume sources, by the field of theirs that refers to a secret.
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
# Those of a CSI driver's volume that a kubelet, and not a controller, gives to the driver.
_CSI_NODE_SECRETS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")

# Sources of volumes that make a pod refer to something of the API, by what they refer to.
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
    """All containers of all kinds."""
    spec = pod.get("spec") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or []


def volumes(pod: Object) -> list[Object]:
    return (pod.get("spec") or {}).get("volumes") or []


def secret_names(pod: Object) -> set[str]:
    """The secrets in the pod's namespace that it refers to."""
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
    """The config maps in the pod's namespace that it refers to."""
    names: set[Any] = set(_names_in_environment(pod, "configMapKeyRef", "configMapRef"))
    for volume in volumes(pod):
        names.add((volume.get("configMap") or {}).get("name"))
        names |= {(each.get("configMap") or {}).get("name") for each in _projections(volume)}
    return {name for name in names if name}


def claim_names(pod: Object) -> set[str]:
    """The persistent volume claims that the pod refers to, those made for it included."""
    names = set()
    for volume in volumes(pod):
        if claim := volume.get("persistentVolumeClaim"):
            names.add(claim.get("claimName"))
        elif volume.get("ephemeral"):
            names.add(f"{pod['metadata']['name']}-{volume['name']}")
    return {name for name in names if name}


def resource_claim_names(pod: Object) -> set[str]:
    """The claims of devices that the pod has, those made for it included."""
    status = pod.get("status") or {}
    made = {each["name"]: each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or []}
    names = {(status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")}
    for claim in (pod.get("spec") or {}).get("resourceClaims") or []:
        names.add(claim.get("resourceClaimName") or made.get(claim["name"]))
    return {name for name in names if name}


def volume_secrets(volume: Object) -> set[tuple[str, str]]:
    """The secrets, by namespace and name, that a kubelet needs for a persistent volume."""
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
    """The first kind of API object that a pod refers to, in upstream's words; nothing if it refers to none."""
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
