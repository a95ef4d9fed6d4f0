"""Validate the claim templates of ephemeral volumes.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1 import validation as unversionedvalidation
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core.validation.names import Errors, invalid_each, validate_positive_quantity_value

_ACCESS_MODES = [v1.READ_ONLY_MANY, v1.READ_WRITE_MANY, v1.READ_WRITE_ONCE, v1.READ_WRITE_ONCE_POD]
_VOLUME_MODES = [v1.PERSISTENT_VOLUME_BLOCK, v1.PERSISTENT_VOLUME_FILESYSTEM]


def validate_persistent_volume_claim_template(
    template: v1.PersistentVolumeClaimTemplate, fld_path: field.Path
) -> Errors:
    errs = _validate_template_object_meta(template.metadata, fld_path.child("metadata"))
    return errs + validate_persistent_volume_claim_spec(template.spec, fld_path.child("spec"))


def _validate_template_object_meta(meta: metav1.ObjectMeta, fld_path: field.Path) -> Errors:
    """Require that a template's metadata contains only labels and annotations."""
    errs = apimachineryvalidation.validate_annotations(meta.annotations, fld_path.child("annotations"))
    errs += unversionedvalidation.validate_labels(meta.labels, fld_path.child("labels"))
    empty = metav1.ObjectMeta()
    for attribute, name in zip(meta.__struct_fields__, meta.__struct_encode_fields__, strict=True):
        if attribute in ("annotations", "labels"):
            continue
        if getattr(meta, attribute) != getattr(empty, attribute):
            errs.append(field.forbidden(fld_path.child(name), "cannot be set"))
    return errs


def validate_persistent_volume_claim_spec(spec: v1.PersistentVolumeClaimSpec, fld_path: field.Path) -> Errors:
    errs = validate_access_modes(spec.access_modes, fld_path.child("accessModes"))
    if spec.selector is not None:
        errs += unversionedvalidation.validate_label_selector(spec.selector, fld_path.child("selector"))
    storage_path = fld_path.child("resources").key("storage")
    storage = spec.resources.requests.get("storage")
    if storage is None:
        errs.append(field.required(storage_path, ""))
    else:
        errs += validate_positive_quantity_value(storage, storage_path)
    if spec.volume_mode is not None and spec.volume_mode not in _VOLUME_MODES:
        errs.append(field.not_supported(fld_path.child("volumeMode"), spec.volume_mode, _VOLUME_MODES))
    for name, child in (
        (spec.storage_class_name, "storageClassName"),
        (spec.volume_attributes_class_name, "volumeAttributesClassName"),
    ):
        if name:
            messages = apimachineryvalidation.name_is_dns_subdomain(name, False)
            errs += invalid_each(fld_path.child(child), name, messages)
    return errs + _validate_data_sources(spec, fld_path)


def validate_access_modes(modes: list[str], fld_path: field.Path) -> Errors:
    if not modes:
        return [field.required(fld_path, "at least 1 access mode is required")]
    errs: Errors = [field.not_supported(fld_path, m, _ACCESS_MODES) for m in modes if m not in _ACCESS_MODES]
    known = {m for m in modes if m in _ACCESS_MODES}
    if v1.READ_WRITE_ONCE_POD in known and len(known) > 1:
        errs.append(field.forbidden(fld_path, "may not use ReadWriteOncePod with other access modes"))
    return errs


def _validate_data_sources(spec: v1.PersistentVolumeClaimSpec, fld_path: field.Path) -> Errors:
    errs: Errors = []
    source, ref = spec.data_source, spec.data_source_ref
    if source is not None:
        errs += _validate_data_source(source, fld_path.child("dataSource"))
    if ref is not None:
        errs += _validate_data_source(ref, fld_path.child("dataSourceRef"))
        if ref.namespace:
            messages = apimachineryvalidation.validate_namespace_name(ref.namespace, False)
            errs += invalid_each(fld_path.child("dataSourceRef", "namespace"), ref.namespace, messages)
    if source is not None and ref is not None:
        if ref.namespace:
            detail = "may not be specified when dataSourceRef.namespace is specified"
            errs.append(field.invalid(fld_path, str(fld_path.child("dataSource")), detail))
        elif (source.api_group, source.kind, source.name) != (ref.api_group, ref.kind, ref.name):
            errs.append(field.invalid(fld_path, str(fld_path.child("dataSource")), "must match dataSourceRef"))
    return errs


def _validate_data_source(
    source: v1.TypedLocalObjectReference | v1.TypedObjectReference, fld_path: field.Path
) -> Errors:
    errs: Errors = []
    if not source.name:
        errs.append(field.required(fld_path.child("name"), ""))
    if not source.kind:
        errs.append(field.required(fld_path.child("kind"), ""))
    if not source.api_group:
        if source.kind != "PersistentVolumeClaim":
            detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            errs.append(field.invalid(fld_path, source.kind, detail))
        return errs
    messages = validation.is_dns1123_subdomain(source.api_group)
    return errs + invalid_each(fld_path.child("apiGroup"), source.api_group, messages)
