"""Validate the volumes of a pod, with every kind of source.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1 import validation as unversionedvalidation
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.claims import validate_persistent_volume_claim_template
from pkg.apis.core.validation.env import validate_downward_api_volume_file
from pkg.apis.core.validation.names import (
    Errors,
    invalid_each,
    is_kubernetes_signer_name,
    validate_cluster_trust_bundle_name,
    validate_dns1123_label,
    validate_file_mode,
    validate_local_descending_path,
    validate_local_non_reserved_path,
    validate_path_no_backsteps,
    validate_signer_name,
    validate_user_annotations,
)

Volumes = dict[str, v1.Volume]

_MAX_EXPIRATION_SECONDS = 91 * 86400
_KUBERNETES_MAX_EXPIRATION_SECONDS = 86400
_ISCSI_NAMES = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$"),
    "eui": re.compile(r"^eui.[A-Za-z0-9]{16}$"),
    "naa": re.compile(r"^naa.[A-Za-z0-9]{32}$"),
}
_HOST_PATH_TYPES = (
    v1.HOST_PATH_UNSET, v1.HOST_PATH_BLOCK_DEV, v1.HOST_PATH_CHAR_DEV, v1.HOST_PATH_DIRECTORY,
    v1.HOST_PATH_DIRECTORY_OR_CREATE, v1.HOST_PATH_FILE, v1.HOST_PATH_FILE_OR_CREATE, v1.HOST_PATH_SOCKET,
)  # fmt: skip
_KEY_TYPES = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"]
_PULL_POLICIES = [v1.PULL_ALWAYS, v1.PULL_IF_NOT_PRESENT, v1.PULL_NEVER]


def validate_volumes(
    volumes: Sequence[v1.Volume], pod_meta: metav1.ObjectMeta, fld_path: field.Path
) -> tuple[Volumes, Errors]:
    """Return the valid volumes by name, and the errors of the others."""
    errs: Errors = []
    created_claims = {f"{pod_meta.name}-{v.name}" for v in volumes if v.ephemeral is not None and pod_meta.name}
    found: Volumes = {}
    for i, volume in enumerate(volumes):
        path = fld_path.index(i)
        faults = _validate_volume_source(volume, path, pod_meta)
        if not volume.name:
            faults.append(field.required(path.child("name"), ""))
        else:
            faults += validate_dns1123_label(volume.name, path.child("name"))
        if volume.name in found:
            faults.append(field.duplicate(path.child("name"), volume.name))
        if not faults:
            found[volume.name] = volume
        errs += faults
        claim = volume.persistent_volume_claim
        if claim is not None and claim.claim_name in created_claims:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            errs.append(field.invalid(path.child("persistentVolumeClaim", "claimName"), claim.claim_name, detail))
    return found, errs


def _validate_volume_source(volume: v1.Volume, fld_path: field.Path, pod_meta: metav1.ObjectMeta) -> Errors:
    errs: Errors = []
    seen = False
    for attribute, name, validate in _SOURCES:
        source = getattr(volume, attribute)
        if source is None:
            continue
        if seen:
            errs.append(field.forbidden(fld_path.child(name), "may not specify more than 1 volume type"))
            continue
        seen = True
        errs += validate(source, fld_path.child(name))
    if not seen:
        errs.append(field.required(fld_path, "must specify a volume type"))
    iscsi = volume.iscsi
    named = iscsi is not None and iscsi.initiator_name is not None
    if iscsi is not None and named and len(f"{volume.name}:{iscsi.target_portal}") > 64:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters "
            "if iscsi.initiatorName is specified."
        )
        errs.append(field.invalid(fld_path.child("name"), volume.name, detail))
    if volume.ephemeral is not None and pod_meta.name and volume.name:
        claim_name = f"{pod_meta.name}-{volume.name}"
        messages = apimachineryvalidation.name_is_dns_subdomain(claim_name, False)
        errs += invalid_each(fld_path.child("name"), volume.name, (f'PVC name "{claim_name}": {m}' for m in messages))
    return errs


def _required(source: object, fld_path: field.Path, fields: Iterable[tuple[str, str]]) -> Errors:
    """Return a Required error for each empty field, given as (attribute, JSON name)."""
    return [field.required(fld_path.child(name), "") for attribute, name in fields if not getattr(source, attribute)]


def _requires(*fields: tuple[str, str]) -> Callable[[Any, field.Path], Errors]:
    """Return a validator for sources in which only some fields are required."""
    return lambda source, fld_path: _required(source, fld_path, fields)


def _validate_secret_ref(secret_ref: v1.LocalObjectReference | None, fld_path: field.Path) -> Errors:
    if secret_ref is not None and not secret_ref.name:
        return [field.required(fld_path.child("secretRef", "name"), "")]
    return []


def _validate_empty_dir(source: v1.EmptyDirVolumeSource, fld_path: field.Path) -> Errors:
    if source.size_limit is not None and source.size_limit.sign() < 0:
        return [field.forbidden(fld_path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")]
    return []


def _validate_host_path(source: v1.HostPathVolumeSource, fld_path: field.Path) -> Errors:
    if not source.path:
        return [field.required(fld_path.child("path"), "")]
    errs = validate_path_no_backsteps(source.path, fld_path.child("path"))
    if source.type is not None and source.type not in _HOST_PATH_TYPES:
        errs.append(field.not_supported(fld_path.child("type"), source.type, sorted(_HOST_PATH_TYPES)))
    return errs


def _validate_git_repo(source: v1.GitRepoVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("repository", "repository")])
    return errs + validate_local_descending_path(source.directory, fld_path.child("directory"))


def _validate_iscsi_name(name: str, fld_path: field.Path) -> Errors:
    pattern = _ISCSI_NAMES.get(name[:3])
    if pattern is None:
        return [field.invalid(fld_path, name, "must be valid format starting with iqn, eui, or naa")]
    return [] if pattern.search(name) else [field.invalid(fld_path, name, "must be valid format")]


def _validate_iscsi(source: v1.ISCSIVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("target_portal", "targetPortal"), ("iqn", "iqn")])
    if source.iqn:
        errs += _validate_iscsi_name(source.iqn, fld_path.child("iqn"))
    if not 0 <= source.lun <= 255:
        errs.append(field.invalid(fld_path.child("lun"), source.lun, validation.inclusive_range_error(0, 255)))
    if (source.chap_auth_discovery or source.chap_auth_session) and source.secret_ref is None:
        errs.append(field.required(fld_path.child("secretRef"), ""))
    if source.initiator_name is not None:
        errs += _validate_iscsi_name(source.initiator_name, fld_path.child("initiatorname"))
    return errs


def _validate_fc(source: v1.FCVolumeSource, fld_path: field.Path) -> Errors:
    errs: Errors = []
    path = fld_path.child("targetWWNs")
    if not source.target_wwns and not source.wwids:
        errs.append(field.required(path, "must specify either targetWWNs or wwids, but not both"))
    if source.target_wwns and source.wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errs.append(field.invalid(path, source.target_wwns, detail))
    if source.target_wwns:
        if source.lun is None:
            errs.append(field.required(fld_path.child("lun"), "lun is required if targetWWNs is specified"))
        elif not 0 <= source.lun <= 255:
            detail = validation.inclusive_range_error(0, 255)
            errs.append(field.invalid(fld_path.child("lun"), source.lun, detail))
    return errs


def _validate_partition(partition: int, fld_path: field.Path) -> Errors:
    if not 0 <= partition <= 255:
        detail = validation.inclusive_range_error(1, 255)
        return [field.invalid(fld_path.child("partition"), partition, detail)]
    return []


def _validate_gce_persistent_disk(source: v1.GCEPersistentDiskVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("pd_name", "pdName")])
    return errs + _validate_partition(source.partition, fld_path)


def _validate_aws_elastic_block_store(source: v1.AWSElasticBlockStoreVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("volume_id", "volumeID")])
    return errs + _validate_partition(source.partition, fld_path)


def _validate_secret(source: v1.SecretVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("secret_name", "secretName")])
    errs += validate_file_mode(source.default_mode, fld_path.child("defaultMode"))
    return errs + _validate_items(source.items, fld_path)


def _validate_config_map(source: v1.ConfigMapVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("name", "name")])
    errs += validate_file_mode(source.default_mode, fld_path.child("defaultMode"))
    return errs + _validate_items(source.items, fld_path)


def _validate_items(items: Sequence[v1.KeyToPath], fld_path: field.Path) -> Errors:
    errs: Errors = []
    for i, item in enumerate(items):
        errs += _validate_key_to_path(item, fld_path.child("items").index(i))
    return errs


def _validate_key_to_path(item: v1.KeyToPath, fld_path: field.Path) -> Errors:
    errs = _required(item, fld_path, [("key", "key"), ("path", "path")])
    errs += validate_local_non_reserved_path(item.path, fld_path.child("path"))
    return errs + validate_file_mode(item.mode, fld_path.child("mode"))


def _validate_nfs(source: v1.NFSVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("server", "server"), ("path", "path")])
    if not source.path.startswith("/"):
        errs.append(field.invalid(fld_path.child("path"), source.path, "must be an absolute path"))
    return errs


def _validate_quobyte(source: v1.QuobyteVolumeSource, fld_path: field.Path) -> Errors:
    errs: Errors = []
    detail = "must be a host:port pair or multiple pairs separated by commas"
    if not source.registry:
        errs.append(field.required(fld_path.child("registry"), detail))
    elif len(source.tenant) >= 65:
        tenant_detail = "must be a UUID and may not exceed a length of 64 characters"
        errs.append(field.required(fld_path.child("tenant"), tenant_detail))
    else:
        for pair in source.registry.split(","):
            if not re.fullmatch(r"([^:\[\]]*|\[[^\[\]]*\]):[^:]*", pair):
                errs.append(field.invalid(fld_path.child("registry"), source.registry, detail))
    return errs + _required(source, fld_path, [("volume", "volume")])


def _validate_flocker(source: v1.FlockerVolumeSource, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if not source.dataset_name and not source.dataset_uuid:
        errs.append(field.required(fld_path, "one of datasetName and datasetUUID is required"))
    if source.dataset_name and source.dataset_uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errs.append(field.invalid(fld_path, "resource", detail))
    if "/" in source.dataset_name:
        errs.append(field.invalid(fld_path.child("datasetName"), source.dataset_name, "must not contain '/'"))
    return errs


def _validate_downward_api(source: v1.DownwardAPIVolumeSource, fld_path: field.Path) -> Errors:
    errs = validate_file_mode(source.default_mode, fld_path.child("defaultMode"))
    for item in source.items:
        errs += validate_downward_api_volume_file(item, fld_path)
    return errs


def _validate_cinder(source: v1.CinderVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("volume_id", "volumeID")])
    return errs + _validate_secret_ref(source.secret_ref, fld_path)


def _validate_flex_volume(source: v1.FlexVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("driver", "driver")])
    for key in source.options:
        domain = "." + key.split("/", 1)[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            errs.append(field.invalid(fld_path.child("options").key(key), key, detail))
    return errs


def _validate_azure_disk(source: v1.AzureDiskVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("disk_name", "diskName"), ("disk_uri", "diskURI")])
    caching = [
        v1.AZURE_DATA_DISK_CACHING_NONE,
        v1.AZURE_DATA_DISK_CACHING_READ_ONLY,
        v1.AZURE_DATA_DISK_CACHING_READ_WRITE,
    ]  # fmt: skip
    if source.caching_mode is not None and source.caching_mode not in caching:
        errs.append(field.not_supported(fld_path.child("cachingMode"), source.caching_mode, caching))
    if source.kind is None:
        return errs
    kinds = [v1.AZURE_DEDICATED_BLOB_DISK, v1.AZURE_MANAGED_DISK, v1.AZURE_SHARED_BLOB_DISK]
    if source.kind not in kinds:
        errs.append(field.not_supported(fld_path.child("kind"), source.kind, kinds))
    managed = source.kind == v1.AZURE_MANAGED_DISK
    if not source.disk_uri.startswith("/subscriptions/" if managed else "https://"):
        wanted = (
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
            if managed
            else "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        )
        errs.append(field.not_supported(fld_path.child("diskURI"), source.disk_uri, [wanted]))
    return errs


def _validate_storageos(source: v1.StorageOSVolumeSource, fld_path: field.Path) -> Errors:
    errs = _required(source, fld_path, [("volume_name", "volumeName")])
    if source.volume_name:
        errs += validate_dns1123_label(source.volume_name, fld_path.child("volumeName"))
    if source.volume_namespace:
        errs += validate_dns1123_label(source.volume_namespace, fld_path.child("volumeNamespace"))
    return errs + _validate_secret_ref(source.secret_ref, fld_path)


def _validate_csi(source: v1.CSIVolumeSource, fld_path: field.Path) -> Errors:
    errs = validate_csi_driver_name(source.driver, fld_path.child("driver"))
    secret_ref = source.node_publish_secret_ref
    if secret_ref is not None and not secret_ref.name:
        errs.append(field.required(fld_path.child("nodePublishSecretRef", "name"), ""))
    elif secret_ref is not None:
        messages = apimachineryvalidation.name_is_dns_subdomain(secret_ref.name, False)
        errs += invalid_each(fld_path.child("name"), secret_ref.name, messages)
    return errs


def validate_csi_driver_name(name: str, fld_path: field.Path) -> Errors:
    if not name:
        return [field.required(fld_path, "")]
    errs: Errors = [field.too_long(fld_path, "", 63)] if len(name) > 63 else []
    return errs + invalid_each(fld_path, name, validation.is_dns1123_subdomain(name.lower()))


def _validate_ephemeral(source: v1.EphemeralVolumeSource, fld_path: field.Path) -> Errors:
    path = fld_path.child("volumeClaimTemplate")
    if source.volume_claim_template is None:
        return [field.required(path, "")]
    return validate_persistent_volume_claim_template(source.volume_claim_template, path)


def _validate_image(source: v1.ImageVolumeSource, fld_path: field.Path) -> Errors:
    # DIVERGES (fault of Go): the kubelet refuses a static pod with an image volume that has no reference.
    # Go: pkg/apis/core/validation/validation.go, validateImageVolumeSource: the reference is required only with
    # ResourceIsPod, which the kubelet does not set.
    # Why: the pod would be admitted, and then fail forever to pull an image without a name.
    # Test: validation_test.py:test_bad_pods
    errs = _required(source, fld_path, [("reference", "reference")])
    return errs + validate_pull_policy(source.pull_policy, fld_path.child("pullPolicy"))


def validate_pull_policy(policy: str, fld_path: field.Path) -> Errors:
    if not policy:
        return [field.required(fld_path, "")]
    return [] if policy in _PULL_POLICIES else [field.not_supported(fld_path, policy, _PULL_POLICIES)]


def _validate_projected(source: v1.ProjectedVolumeSource, fld_path: field.Path) -> Errors:
    errs = validate_file_mode(source.default_mode, fld_path.child("defaultMode"))
    paths: set[str] = set()
    for i, projection in enumerate(source.sources):
        path = fld_path.child("sources").index(i)
        errs += _Projection(fld_path, path, paths).validate(projection)
    return errs


class _Projection:
    """Validate projections one by one; `paths` are the files that the previous ones create."""

    def __init__(self, fld_path: field.Path, src_path: field.Path, paths: set[str]) -> None:
        self._fld_path = fld_path
        self._src_path = src_path
        self._paths = paths

    def validate(self, projection: v1.VolumeProjection) -> Errors:
        errs: Errors = []
        sources = 0
        for attribute, name, validate in (
            ("secret", "secret", self._items),
            ("config_map", "configMap", self._items),
            ("downward_api", "downwardAPI", self._downward_api),
            ("service_account_token", "serviceAccountToken", self._service_account_token),
            ("cluster_trust_bundle", "clusterTrustBundle", self._cluster_trust_bundle),
            ("pod_certificate", "podCertificate", self._pod_certificate),
        ):
            source = getattr(projection, attribute)
            if source is not None:
                sources += 1
                errs += validate(source, self._src_path.child(name))
        if sources > 1:
            detail = "may not specify more than 1 volume type per source"
            errs.append(field.forbidden(self._src_path, detail))
        return errs

    def _take(self, path: str, value: str) -> Errors:
        """Record that the projection creates a file, and return an error if the file already exists."""
        if path in self._paths:
            return [field.invalid(self._fld_path, value, "conflicting duplicate paths")]
        self._paths.add(path)
        return []

    def _items(self, source: v1.SecretProjection | v1.ConfigMapProjection, path: field.Path) -> Errors:
        errs = _required(source, path, [("name", "name")])
        for i, item in enumerate(source.items):
            errs += _validate_key_to_path(item, path.child("items").index(i))
            if item.path:
                errs += self._take(item.path, source.name)
        return errs

    def _downward_api(self, source: v1.DownwardAPIProjection, path: field.Path) -> Errors:
        errs: Errors = []
        for item in source.items:
            errs += validate_downward_api_volume_file(item, path)
            if item.path:
                errs += self._take(item.path, item.path)
        return errs

    def _service_account_token(self, source: v1.ServiceAccountTokenProjection, path: field.Path) -> Errors:
        errs: Errors = []
        seconds = source.expiration_seconds or 0
        if seconds < 600:
            detail = "may not specify a duration less than 10 minutes"
            errs.append(field.invalid(path.child("expirationSeconds"), seconds, detail))
        if seconds > 1 << 32:
            detail = "may not specify a duration larger than 2^32 seconds"
            errs.append(field.invalid(path.child("expirationSeconds"), seconds, detail))
        if not source.path:
            errs.append(field.required(self._fld_path.child("path"), ""))
        return errs + validate_local_non_reserved_path(source.path, self._fld_path.child("path"))

    def _cluster_trust_bundle(self, source: v1.ClusterTrustBundleProjection, path: field.Path) -> Errors:
        errs: Errors = []
        if source.name is not None and source.signer_name is not None:
            errs.append(field.invalid(path, source.name, "only one of name and signerName may be used"))
        elif source.name is not None:
            if not source.name:
                errs.append(field.required(path.child("name"), "must be a valid object name"))
            messages = validate_cluster_trust_bundle_name(source.name)
            errs += invalid_each(
                path.child("name"),
                source.name,
                (f"not a valid clustertrustbundlename: {m}" for m in messages),
            )
            if source.label_selector is not None:
                detail = "labelSelector must be unset if name is specified"
                errs.append(field.invalid(path.child("labelSelector"), source.name, detail))
        elif source.signer_name is not None:
            if not source.signer_name:
                errs.append(field.required(path.child("signerName"), "must be a valid signer name"))
            errs += validate_signer_name(path.child("signerName"), source.signer_name)
            errs += unversionedvalidation.validate_label_selector(source.label_selector, path.child("labelSelector"))
        else:
            errs.append(field.required(path, "either name or signerName must be specified"))
        errs += _required(source, path, [("path", "path")])
        errs += validate_local_non_reserved_path(source.path, path.child("path"))
        return errs + self._take(source.path, source.path)

    def _pod_certificate(self, source: v1.PodCertificateProjection, path: field.Path) -> Errors:
        errs = validate_signer_name(path.child("signerName"), source.signer_name)
        errs += validate_user_annotations(source.user_annotations, path.child("userAnnotations"))
        if source.key_type not in _KEY_TYPES:
            errs.append(field.not_supported(path.child("keyType"), source.key_type, _KEY_TYPES))
        errs += _validate_max_expiration(source, path.child("maxExpirationSeconds"))
        files = {
            "credentialBundlePath": source.credential_bundle_path,
            "keyPath": source.key_path,
            "certificateChainPath": source.certificate_chain_path,
        }
        for name, file in files.items():
            if file:
                errs += validate_local_non_reserved_path(file, path.child(name))
                errs += self._take(file, file)
        if not any(files.values()):
            detail = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
            errs.append(field.required(path, detail))
        return errs


def _validate_max_expiration(source: v1.PodCertificateProjection, fld_path: field.Path) -> Errors:
    seconds = source.max_expiration_seconds
    if seconds is None:
        return []
    kubernetes = is_kubernetes_signer_name(source.signer_name)
    longest = _KUBERNETES_MAX_EXPIRATION_SECONDS if kubernetes else _MAX_EXPIRATION_SECONDS
    if seconds < 3600:
        return [field.invalid(fld_path, seconds, "if provided, maxExpirationSeconds must be >= 3600")]
    if seconds > longest:
        return [field.invalid(fld_path, seconds, f"if provided, maxExpirationSeconds must be <= {longest}")]
    return []


_Validator = Callable[[Any, field.Path], Errors]
# Each entry is (attribute, JSON name, validator). Go's order decides which source counts as the second one.
# DIVERGES (fault of Go): error messages about volumes name the field as the manifest does.
# Go: pkg/apis/core/validation/validation.go, validateVolumeSource: they say persistentDisk, downwarAPI and cephFS.
# Why: no manifest has fields of these names.
# Test: validation_test.py:test_bad_pods
_SOURCES: tuple[tuple[str, str, _Validator], ...] = (
    ("empty_dir", "emptyDir", _validate_empty_dir),
    ("host_path", "hostPath", _validate_host_path),
    ("git_repo", "gitRepo", _validate_git_repo),
    ("gce_persistent_disk", "gcePersistentDisk", _validate_gce_persistent_disk),
    ("aws_elastic_block_store", "awsElasticBlockStore", _validate_aws_elastic_block_store),
    ("secret", "secret", _validate_secret),
    ("nfs", "nfs", _validate_nfs),
    ("iscsi", "iscsi", _validate_iscsi),
    ("glusterfs", "glusterfs", _requires(("endpoints", "endpoints"), ("path", "path"))),
    ("flocker", "flocker", _validate_flocker),
    ("persistent_volume_claim", "persistentVolumeClaim", _requires(("claim_name", "claimName"))),
    ("rbd", "rbd", _requires(("monitors", "monitors"), ("image", "image"))),
    ("cinder", "cinder", _validate_cinder),
    ("cephfs", "cephfs", _requires(("monitors", "monitors"))),
    ("quobyte", "quobyte", _validate_quobyte),
    ("downward_api", "downwardAPI", _validate_downward_api),
    ("fc", "fc", _validate_fc),
    ("flex_volume", "flexVolume", _validate_flex_volume),
    ("config_map", "configMap", _validate_config_map),
    ("azure_file", "azureFile", _requires(("secret_name", "secretName"), ("share_name", "shareName"))),
    ("vsphere_volume", "vsphereVolume", _requires(("volume_path", "volumePath"))),
    ("photon_persistent_disk", "photonPersistentDisk", _requires(("pd_id", "pdID"))),
    ("portworx_volume", "portworxVolume", _requires(("volume_id", "volumeID"))),
    ("azure_disk", "azureDisk", _validate_azure_disk),
    ("storageos", "storageos", _validate_storageos),
    ("projected", "projected", _validate_projected),
    (
        "scale_io",
        "scaleIO",
        _requires(("gateway", "gateway"), ("system", "system"), ("volume_name", "volumeName")),
    ),
    ("csi", "csi", _validate_csi),
    ("ephemeral", "ephemeral", _validate_ephemeral),
    ("image", "image", _validate_image),
)
