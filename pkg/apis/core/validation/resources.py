"""Validate the requests, limits and claims of containers and pods.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core import helper
from pkg.apis.core.validation.names import (
    IS_NOT_INTEGER_ERROR_MSG,
    Errors,
    invalid_each,
    validate_dns1123_label,
    validate_nonnegative_quantity,
)
from pkg.component_helpers import resource as resourcehelper

_ResourceNameFn = Callable[[str, field.Path], Errors]


def _validate_resource_name(value: str, fld_path: field.Path) -> Errors:
    errs = invalid_each(fld_path, value, validation.is_qualified_name(value))
    if not errs and "/" not in value and not helper.is_standard_resource_name(value):
        errs.append(field.invalid(fld_path, value, "must be a standard resource type or fully qualified"))
    return errs


def validate_container_resource_name(value: str, fld_path: field.Path) -> Errors:
    errs = _validate_resource_name(value, fld_path)
    if "/" not in value:
        if not helper.is_standard_container_resource_name(value):
            errs.append(field.invalid(fld_path, value, "must be a standard resource for containers"))
    elif not helper.is_native_resource(value) and not helper.is_extended_resource_name(value):
        errs.append(field.invalid(fld_path, value, "doesn't follow extended resource name standard"))
    return errs


def validate_pod_resource_name(value: str, fld_path: field.Path) -> Errors:
    errs = _validate_resource_name(value, fld_path)
    if not errs and not resourcehelper.is_supported_pod_level_resource(value):
        supported = sorted(resourcehelper.supported_pod_level_resources())
        errs.append(field.not_supported(fld_path, value, supported))
    return errs


def validate_resource_quantity_value(name: str, value: Quantity, fld_path: field.Path) -> Errors:
    errs = validate_nonnegative_quantity(value, fld_path)
    if helper.is_integer_resource_name(name) and value.milli_value() % 1000:
        errs.append(field.invalid(fld_path, str(value), IS_NOT_INTEGER_ERROR_MSG))
    return errs


def validate_container_resource_requirements(
    requirements: v1.ResourceRequirements, pod_claim_names: Set[str], fld_path: field.Path
) -> Errors:
    return _validate_resource_requirements(requirements, validate_container_resource_name, pod_claim_names, fld_path)


def _validate_resource_requirements(
    requirements: v1.ResourceRequirements,
    resource_name_fn: _ResourceNameFn,
    pod_claim_names: Set[str],
    fld_path: field.Path,
) -> Errors:
    limits, requests = requirements.limits, requirements.requests
    errs = _validate_amounts(limits, resource_name_fn, fld_path.child("limits"))
    errs += _validate_amounts(requests, resource_name_fn, fld_path.child("requests"))
    errs += _validate_requests_against_limits(requests, limits, fld_path)
    names = {*limits, *requests}
    if names.isdisjoint(("cpu", "memory")) and any(map(helper.is_huge_page_resource_name, names)):
        errs.append(field.forbidden(fld_path, "HugePages require cpu or memory"))
    return errs + _validate_resource_claim_names(requirements.claims, pod_claim_names, fld_path.child("claims"))


def _validate_amounts(
    amounts: Mapping[str, Quantity], resource_name_fn: _ResourceNameFn, fld_path: field.Path
) -> Errors:
    errs: Errors = []
    for name, quantity in amounts.items():
        key_path = fld_path.key(name)
        errs += resource_name_fn(name, key_path)
        errs += validate_resource_quantity_value(name, quantity, key_path)
        if helper.is_huge_page_resource_name(name) and not helper.is_huge_page_resource_value_divisible(name, quantity):
            detail = f"{quantity} is not positive integer multiple of {name}"
            errs.append(field.invalid(key_path, str(quantity), detail))
    return errs


def _validate_requests_against_limits(
    requests: Mapping[str, Quantity], limits: Mapping[str, Quantity], fld_path: field.Path
) -> Errors:
    errs: Errors = []
    req_path = fld_path.child("requests")
    for name, quantity in requests.items():
        limit = limits.get(name)
        if limit is None:
            if not helper.is_overcommit_allowed(name):
                detail = "Limit must be set for non overcommitable resources"
                errs.append(field.required(fld_path.child("limits"), detail))
        elif quantity != limit and not helper.is_overcommit_allowed(name):
            detail = f"must be equal to {name} limit of {limit}"
            errs.append(field.invalid(req_path, str(quantity), detail))
        elif quantity > limit:
            detail = f"must be less than or equal to {name} limit of {limit}"
            errs.append(field.invalid(req_path, str(quantity), detail))
    return errs


def _validate_resource_claim_names(
    claims: Sequence[v1.ResourceClaim], pod_claim_names: Set[str], fld_path: field.Path
) -> Errors:
    """Validate the claims of a container.

    A container uses claims of its pod, each either as a whole or by its requests, and nothing twice.
    """
    errs: Errors = []
    names: set[str] = set()
    # These are the claims of which a request was already used.
    in_part: set[str] = set()
    known = ", ".join(sorted(pod_claim_names))
    # All errors share this text, because both claims and names may be numerous.
    detail = "must be one of the names in pod.spec.resourceClaims" + (f": {known}" if known else " which is empty")
    for i, claim in enumerate(claims):
        path = fld_path.index(i)
        if not claim.name:
            errs.append(field.required(path, ""))
            continue
        errs += _validate_claim_not_repeated(claim, names, in_part, path)
        if claim.name not in pod_claim_names:
            errs.append(field.Error(field.ErrorType.NOT_FOUND, path, claim.name, detail))
    return errs


def _validate_claim_not_repeated(
    claim: v1.ResourceClaim, names: set[str], in_part: set[str], path: field.Path
) -> Errors:
    if claim.name in names:
        return [field.duplicate(path, claim.name)]
    errs: Errors = []
    key = claim.name
    if claim.request:
        errs += validate_dns1123_label(claim.request, path.child("request"))
        key = f"{claim.name}/{claim.request}"
    if key in names:
        errs.append(field.duplicate(path, key))
    elif not claim.request and claim.name in in_part:
        errs.append(field.duplicate(path, claim.name))
    names.add(key)
    if claim.request:
        in_part.add(claim.name)
    return errs


def validate_pod_resource_claims(
    pod_meta: metav1.ObjectMeta, claims: Sequence[v1.PodResourceClaim], fld_path: field.Path
) -> Errors:
    errs: Errors = []
    names: set[str] = set()
    for i, claim in enumerate(claims):
        errs += _validate_pod_resource_claim(pod_meta, claim, names, fld_path.index(i))
    return errs


def _validate_pod_resource_claim(
    pod_meta: metav1.ObjectMeta, claim: v1.PodResourceClaim, names: set[str], fld_path: field.Path
) -> Errors:
    if v1.MIRROR_POD_ANNOTATION_KEY in pod_meta.annotations:
        return [field.forbidden(fld_path, "static pods do not support resource claims")]
    errs: Errors = []
    if not claim.name:
        errs.append(field.required(fld_path.child("name"), ""))
    elif claim.name in names:
        errs.append(field.duplicate(fld_path.child("name"), claim.name))
    else:
        errs += validate_dns1123_label(claim.name, fld_path.child("name"))
        names.add(claim.name)
    of_claim, of_template = claim.resource_claim_name, claim.resource_claim_template_name
    if of_claim is not None and of_template is not None:
        detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        errs.append(field.invalid(fld_path, claim.name, detail))
    if of_claim is None and of_template is None:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        errs.append(field.invalid(fld_path, claim.name, detail))
    for name, child in ((of_claim, "resourceClaimName"), (of_template, "resourceClaimTemplateName")):
        if name is not None:
            messages = apimachineryvalidation.name_is_dns_subdomain(name, False)
            errs += invalid_each(fld_path.child(child), name, messages)
    return errs


def validate_pod_resources(spec: v1.PodSpec, pod_claim_names: Set[str], fld_path: field.Path) -> Errors:
    """Validate the pod-level resources, which the containers share."""
    if spec.resources is None:
        return []
    path = fld_path.child("resources")
    if spec.os is not None and spec.os.name == v1.WINDOWS:
        return [field.forbidden(path, "may not be set for a windows pod")]
    errs: Errors = []
    if spec.resources.claims:
        errs.append(field.forbidden(path.child("claims"), "claims may not be set for Resources at pod-level"))
    errs += _validate_resource_requirements(spec.resources, validate_pod_resource_name, pod_claim_names, path)
    return errs + _validate_pod_resource_consistency(spec, spec.resources, path)


def _validate_pod_resource_consistency(
    spec: v1.PodSpec, resources: v1.ResourceRequirements, fld_path: field.Path
) -> Errors:
    """Require that the sums of the containers' requests do not exceed the pod-level requests."""
    errs: Errors = []
    pod, options = v1.Pod(spec=spec), resourcehelper.PodResourcesOptions()
    for name, wanted in resourcehelper.aggregate_container_requests(pod, options).items():
        has = resources.requests.get(name)
        if has is not None and wanted > has:
            detail = f"must be greater than or equal to aggregate container requests of {wanted}"
            errs.append(field.invalid(fld_path.child("requests").key(name), str(has), detail))
    for name, wanted in resourcehelper.aggregate_container_limits(pod, options).items():
        has = resources.limits.get(name)
        if helper.is_huge_page_resource_name(name) and has is not None and wanted > has:
            detail = f"must be greater than or equal to aggregate container limits of {wanted}"
            errs.append(field.invalid(fld_path.child("limits").key(name), str(has), detail))
    for i, container in enumerate(spec.containers):
        for name, limit in container.resources.limits.items():
            has = resources.limits.get(name)
            if has is not None and limit > has:
                path = fld_path.child("containers").index(i).key(name).child("limits")
                errs.append(field.invalid(path, str(limit), f"must be less than or equal to pod limits of {has}"))
    return errs
