"""Find the objects to which a pod refers, and the rules by which it is validated.

Go: pkg/api/pod/util.go
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pkg import features
from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apis.core import validation

# A visitor receives a name, and returns False to end the walk.
Visitor = Callable[[str], bool]


def visit_pod_secret_names(pod: v1.Pod, visitor: Visitor) -> bool:
    """Visit the name of every secret to which the pod refers; return False if the visitor ended the walk."""
    return all(visitor(name) for name in _secret_names(pod) if name)


def _secret_names(pod: v1.Pod) -> Iterator[str]:
    yield from (reference.name for reference in pod.spec.image_pull_secrets)
    for container in _containers(pod):
        yield from (e.secret_ref.name for e in container.env_from if e.secret_ref)
        for env in container.env:
            if env.value_from and env.value_from.secret_key_ref:
                yield env.value_from.secret_key_ref.name
    for volume in pod.spec.volumes:
        yield from _volume_secret_names(volume)


def _volume_secret_names(volume: v1.Volume) -> Iterator[str]:
    if volume.azure_file:
        yield volume.azure_file.secret_name
    elif volume.projected:
        yield from (s.secret.name for s in volume.projected.sources if s.secret)
    elif volume.secret:
        yield volume.secret.secret_name
    elif volume.csi:
        if volume.csi.node_publish_secret_ref:
            yield volume.csi.node_publish_secret_ref.name
    else:
        source = (
            volume.cephfs
            or volume.cinder
            or volume.flex_volume
            or volume.rbd
            or volume.scale_io
            or volume.iscsi
            or volume.storageos
        )
        if source and source.secret_ref:
            yield source.secret_ref.name


def visit_pod_configmap_names(pod: v1.Pod, visitor: Visitor) -> bool:
    """Visit the name of every config map to which the pod refers; return False if the visitor ended the walk."""
    return all(visitor(name) for name in _configmap_names(pod) if name)


def _configmap_names(pod: v1.Pod) -> Iterator[str]:
    for container in _containers(pod):
        yield from (e.config_map_ref.name for e in container.env_from if e.config_map_ref)
        for env in container.env:
            if env.value_from and env.value_from.config_map_key_ref:
                yield env.value_from.config_map_key_ref.name
    for volume in pod.spec.volumes:
        if volume.projected:
            yield from (s.config_map.name for s in volume.projected.sources if s.config_map)
        elif volume.config_map:
            yield volume.config_map.name


def _containers(pod: v1.Pod) -> Iterator[v1.Container | v1.EphemeralContainer]:
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def has_api_object_reference(pod: v1.Pod) -> str:
    """Return, as text for a message, a kind of API object to which the pod refers, or "" if there is none.

    Raise ValueError for a volume of an unknown kind.
    """
    return next(api_object_references(pod), "")


def api_object_references(pod: v1.Pod) -> Iterator[str]:
    """Yield the kinds of all API objects to which the pod refers, in the form of has_api_object_reference.

    Raise ValueError for a volume of an unknown kind.
    """
    if pod.spec.service_account_name:
        yield "serviceaccounts"
    if not visit_pod_secret_names(pod, lambda _: False):
        yield "secrets"
    if not visit_pod_configmap_names(pod, lambda _: False):
        yield "configmaps"
    if pod.spec.resource_claims:
        yield "resourceclaims"
    for volume in pod.spec.volumes:
        yield from _volume_references(volume)


# These volumes need nothing from the API server.
_LOCAL_VOLUMES = (
    "aws_elastic_block_store", "azure_disk", "cephfs", "cinder", "downward_api", "empty_dir", "fc",
    "flex_volume", "flocker", "gce_persistent_disk", "git_repo", "host_path", "image", "iscsi", "nfs",
    "photon_persistent_disk", "portworx_volume", "quobyte", "rbd", "scale_io", "storageos", "vsphere_volume",
)  # fmt: skip
_API_VOLUMES = {
    "config_map": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistent_volume_claim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azure_file": "secrets (via azureFile volumes)",
}
_API_PROJECTIONS = {
    "config_map": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "service_account_token": "serviceaccounts (via projected volumes)",
    "cluster_trust_bundle": "clustertrustbundles",
    "pod_certificate": "podcertificates",
}


def _volume_references(volume: v1.Volume) -> Iterator[str]:
    if any(getattr(volume, name) is not None for name in _LOCAL_VOLUMES):
        return
    if volume.projected is None:
        found = [reference for name, reference in _API_VOLUMES.items() if getattr(volume, name) is not None]
        if not found:
            raise ValueError(f'unknown volume type for volume "{volume.name}"')
        yield found[0]
        return
    for source in volume.projected.sources:
        found = [reference for name, reference in _API_PROJECTIONS.items() if getattr(source, name) is not None]
        yield from found
        if not found and source.downward_api is None:
            raise ValueError(f'unknown source for projected volume "{volume.name}"')


def get_validation_options_from_pod_spec_and_meta(
    pod_spec: v1.PodSpec, pod_meta: metav1.ObjectMeta
) -> validation.PodValidationOptions:
    """Return the rules for a new pod according to the feature gates.

    Go also considers the pod's previous state, which the kubelet never passes.
    """
    enabled = features.feature_gate.enabled
    return validation.PodValidationOptions(
        allow_invalid_pod_deletion_cost=not enabled(features.POD_DELETION_COST),
        pod_level_resources_enabled=enabled(features.POD_LEVEL_RESOURCES),
        allow_match_label_keys_in_pod_topology_spread=enabled(features.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD),
        allow_match_label_keys_in_pod_topology_spread_selector_merge=enabled(
            features.MATCH_LABEL_KEYS_IN_POD_TOPOLOGY_SPREAD_SELECTOR_MERGE
        ),
        allow_container_restart_policy_rules=enabled(features.CONTAINER_RESTART_RULES),
        allow_restart_all_containers=enabled(features.RESTART_ALL_CONTAINERS_ON_CONTAINER_EXITS),
        allow_env_files_validation=enabled(features.ENV_FILES),
        allow_taint_toleration_comparison_operators=enabled(features.TAINT_TOLERATION_COMPARISON_OPERATORS),
        allow_user_namespaces_host_network_support=enabled(features.USER_NAMESPACES_HOST_NETWORK_SUPPORT),
        strict_ip_validation=enabled(features.STRICT_IP_CIDR_VALIDATION),
    )
