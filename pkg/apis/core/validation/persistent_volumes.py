"""Validate persistent volumes and claims.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.claims import validate_access_modes, validate_persistent_volume_claim_spec
from pkg.apis.core.validation.names import Errors, validate_path_no_backsteps, validate_positive_quantity_value
from pkg.apis.core.validation.validation import validate_object_meta

# These fields of a PersistentVolumeSpec are not sources.
_NO_SOURCES = frozenset(
    (
        "access_modes", "capacity", "claim_ref", "mount_options", "node_affinity", "persistent_volume_reclaim_policy",
        "storage_class_name", "volume_attributes_class_name", "volume_mode",
    )
)  # fmt: skip
_VOLUME_MODES = [v1.PERSISTENT_VOLUME_BLOCK, v1.PERSISTENT_VOLUME_FILESYSTEM]


def validate_persistent_volume(volume: v1.PersistentVolume) -> Errors:
    """Return all errors in a persistent volume.

    Of the source, only its presence and the path of a hostPath are validated.
    """
    name_fn = apimachineryvalidation.name_is_dns_subdomain
    errs: Errors = list(
        apimachineryvalidation.validate_object_meta(volume.metadata, False, name_fn, field.Path("metadata"))
    )
    path, spec = field.Path("spec"), volume.spec
    errs += validate_access_modes(spec.access_modes, path.child("accessModes"))
    storage = spec.capacity.get("storage")
    if storage is None:
        errs.append(field.required(path.child("capacity").key("storage"), ""))
    else:
        errs += validate_positive_quantity_value(storage, path.child("capacity").key("storage"))
    if spec.volume_mode is not None and spec.volume_mode not in _VOLUME_MODES:
        errs.append(field.not_supported(path.child("volumeMode"), spec.volume_mode, _VOLUME_MODES))
    return errs + _validate_source(spec, path)


def _validate_source(spec: v1.PersistentVolumeSpec, path: field.Path) -> Errors:
    names = zip(spec.__struct_fields__, spec.__struct_encode_fields__, strict=True)
    sources = [wire for name, wire in names if name not in _NO_SOURCES and getattr(spec, name) is not None]
    if not sources:
        return [field.required(path, "must specify a volume type")]
    errs: Errors = [field.forbidden(path.child(s), "may not specify more than 1 volume type") for s in sources[1:]]
    if spec.host_path is not None:
        host_path = path.child("hostPath", "path")
        if not spec.host_path.path:
            errs.append(field.required(host_path, ""))
        errs += validate_path_no_backsteps(spec.host_path.path, host_path)
    return errs


def validate_persistent_volume_claim(claim: v1.PersistentVolumeClaim) -> Errors:
    """Return all errors in a claim."""
    errs = validate_object_meta(claim.metadata, field.Path("metadata"))
    return errs + validate_persistent_volume_claim_spec(claim.spec, field.Path("spec"))
