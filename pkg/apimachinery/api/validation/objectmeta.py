"""Validate the metadata of objects.

Go: k8s.io/apimachinery/pkg/api/validation/objectmeta.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pkg.apimachinery.api.validation.generic import (
    ValidateNameFunc,
    validate_namespace_name,
    validate_nonnegative_field,
)
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.apis.meta.v1 import validation as v1validation
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field

TOTAL_ANNOTATION_SIZE_LIMIT_B = 256 * 1024

_FINALIZER_ORPHAN_DEPENDENTS = "orphan"
_FINALIZER_DELETE_DEPENDENTS = "foregroundDeletion"


def validate_annotations(annotations: Mapping[str, str], fld_path: field.Path) -> field.ErrorList:
    errs = field.ErrorList()
    for key in annotations:
        errs += [field.invalid(fld_path, key, m) for m in validation.is_qualified_name(key.lower())]
    errs += validate_annotations_size(annotations, fld_path)
    return errs


def validate_annotations_size(annotations: Mapping[str, str], fld_path: field.Path) -> field.ErrorList:
    total = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if total <= TOTAL_ANNOTATION_SIZE_LIMIT_B:
        return field.ErrorList()
    return field.ErrorList([field.too_long(fld_path, "", TOTAL_ANNOTATION_SIZE_LIMIT_B)])


def validate_owner_references(references: Sequence[metav1.OwnerReference], fld_path: field.Path) -> field.ErrorList:
    """Check that each reference names an object, and that at most one of them is the controller."""
    errs = field.ErrorList()
    controller = ""
    for reference in references:
        errs += _validate_owner_reference(reference, fld_path)
        if not reference.controller:
            continue
        current = f"{reference.kind}/{reference.name}"
        if controller:
            detail = (
                "Only one reference can have Controller set to true. "
                f'Found "true" in references for {controller} and {current}'
            )
            errs.append(field.invalid(fld_path, current, detail))
        controller = controller or current
    return errs


def _validate_owner_reference(reference: metav1.OwnerReference, fld_path: field.Path) -> field.ErrorList:
    errs = field.ErrorList()
    if not reference.api_version.rpartition("/")[2]:
        errs.append(field.invalid(fld_path.child("apiVersion"), reference.api_version, "version must not be empty"))
    for name, value in (("kind", reference.kind), ("name", reference.name), ("uid", reference.uid)):
        if not value:
            errs.append(field.invalid(fld_path.child(name), value, "must not be empty"))
    if (reference.api_version, reference.kind) == ("v1", "Event"):
        detail = "/v1, Kind=Event is disallowed from being an owner"
        errs.append(field.invalid(fld_path, reference.name, detail))
    return errs


def validate_finalizers(finalizers: Sequence[str], fld_path: field.Path) -> field.ErrorList:
    errs = field.ErrorList()
    for finalizer in finalizers:
        errs += [field.invalid(fld_path, finalizer, m) for m in validation.is_qualified_name(finalizer)]
    if _FINALIZER_ORPHAN_DEPENDENTS in finalizers and _FINALIZER_DELETE_DEPENDENTS in finalizers:
        detail = f"finalizer {_FINALIZER_ORPHAN_DEPENDENTS} and {_FINALIZER_DELETE_DEPENDENTS} cannot be both set"
        errs.append(field.invalid(fld_path, list(finalizers), detail))
    return errs


def validate_object_meta(
    meta: metav1.ObjectMeta, requires_namespace: bool, name_fn: ValidateNameFunc, fld_path: field.Path
) -> field.ErrorList:
    """Validate all metadata of an object; name_fn validates names of its kind.

    DIVERGES (safer): the kubelet does not validate the managedFields of a static pod.
    Go: k8s.io/apimachinery/pkg/api/validation/objectmeta.go, ValidateObjectMetaAccessor: the Go kubelet refuses invalid
    ones.
    Why: the kubelet does not decode managedFields, so that invalid ones cannot hide the deletion of a pod. Only the API
    server uses them.
    Test: pkg/apimachinery/runtime/codec_test.py:test_managed_fields_are_not_decoded
    """
    errs = field.ErrorList()
    if meta.generate_name:
        path = fld_path.child("generateName")
        errs += [field.invalid(path, meta.generate_name, m) for m in name_fn(meta.generate_name, True)]
    if not meta.name:
        errs.append(field.required(fld_path.child("name"), "name or generateName is required"))
    else:
        errs += [field.invalid(fld_path.child("name"), meta.name, m) for m in name_fn(meta.name, False)]
    errs += _validate_namespace(meta.namespace, requires_namespace, fld_path.child("namespace"))
    errs += validate_nonnegative_field(meta.generation, fld_path.child("generation"))
    errs += v1validation.validate_labels(meta.labels, fld_path.child("labels"))
    errs += validate_annotations(meta.annotations, fld_path.child("annotations"))
    errs += validate_owner_references(meta.owner_references, fld_path.child("ownerReferences"))
    errs += validate_finalizers(meta.finalizers, fld_path.child("finalizers"))
    return errs


def _validate_namespace(namespace: str, required: bool, fld_path: field.Path) -> list[field.Error]:
    if not required:
        return [field.forbidden(fld_path, "not allowed on this type")] if namespace else []
    if not namespace:
        return [field.required(fld_path, "")]
    return [field.invalid(fld_path, namespace, m) for m in validate_namespace_name(namespace, False)]
