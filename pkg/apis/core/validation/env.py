"""Validate environment variables, and the pod fields that they and downward API volumes may expose.

Go: pkg/apis/core/validation/validation.go
"""

from __future__ import annotations

from collections.abc import Sequence

from pkg import fieldpath
from pkg.api.core import v1
from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field
from pkg.apis.core import pods as podshelper
from pkg.apis.core.validation.names import (
    Errors,
    invalid_each,
    validate_dns1123_label,
    validate_file_mode,
    validate_local_non_reserved_path,
    validate_path_no_backsteps,
    validate_qualified_name,
)
from pkg.apis.core.validation.options import PodValidationOptions

_VOLUME_FIELD_PATHS = [
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
]  # fmt: skip
_ENV_FIELD_PATHS = [
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
]  # fmt: skip
_RESOURCES = [
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
]  # fmt: skip
_HUGE_PAGES_PREFIXES = ("requests.hugepages-", "limits.hugepages-")
_CPU_DIVISORS = ("1m", "1")
_BYTES_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def validate_env(variables: Sequence[v1.EnvVar], fld_path: field.Path, opts: PodValidationOptions) -> Errors:
    errs: Errors = []
    for i, variable in enumerate(variables):
        path = fld_path.index(i)
        if not variable.name:
            errs.append(field.required(path.child("name"), ""))
        else:
            messages = validation.is_relaxed_env_var_name(variable.name)
            errs += invalid_each(path.child("name"), variable.name, messages)
        if variable.value_from is not None:
            errs += _validate_value_from(variable, variable.value_from, path.child("valueFrom"), opts)
    return errs


def _validate_value_from(
    variable: v1.EnvVar, source: v1.EnvVarSource, fld_path: field.Path, opts: PodValidationOptions
) -> Errors:
    errs: Errors = []
    if source.field_ref is not None:
        errs += _validate_object_field_selector(source.field_ref, _ENV_FIELD_PATHS, fld_path.child("fieldRef"))
    if source.resource_field_ref is not None:
        path = fld_path.child("resourceFieldRef")
        errs += _validate_resource_field_selector(source.resource_field_ref, path, volume=False)
    if source.config_map_key_ref is not None:
        errs += _validate_key_selector(source.config_map_key_ref, fld_path.child("configMapKeyRef"))
    if source.secret_key_ref is not None:
        errs += _validate_key_selector(source.secret_key_ref, fld_path.child("secretKeyRef"))
    if source.file_key_ref is not None:
        errs += _validate_file_key_selector(source.file_key_ref, fld_path.child("fileKeyRef"))

    sources = sum(getattr(source, name) is not None for name in source.__struct_fields__)
    if sources == 0:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        if opts.allow_env_files_validation:
            kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errs.append(field.invalid(fld_path, "", f"must specify one of: {kinds}"))
    elif variable.value:
        errs.append(field.invalid(fld_path, "", "may not be specified when `value` is not empty"))
    elif sources > 1:
        errs.append(field.invalid(fld_path, "", "may not have more than one field specified at a time"))
    return errs


def _validate_object_field_selector(
    selector: v1.ObjectFieldSelector, expressions: Sequence[str], fld_path: field.Path
) -> Errors:
    if not selector.api_version:
        return [field.required(fld_path.child("apiVersion"), "")]
    if not selector.field_path:
        return [field.required(fld_path.child("fieldPath"), "")]
    try:
        label, _ = podshelper.convert_downward_api_field_label(selector.api_version, selector.field_path, "")
    except ValueError as err:
        detail = f"error converting fieldPath: {err}"
        return [field.invalid(fld_path.child("fieldPath"), selector.field_path, detail)]
    if (split := fieldpath.split_maybe_subscripted_path(label)) is not None:
        path, subscript = split
        # At this point only annotations and labels can have a subscript.
        name = subscript.lower() if path == "metadata.annotations" else subscript
        return validate_qualified_name(name, fld_path)
    if label not in expressions:
        return [field.not_supported(fld_path.child("fieldPath"), label, list(expressions))]
    return []


def _validate_resource_field_selector(
    selector: v1.ResourceFieldSelector, fld_path: field.Path, *, volume: bool
) -> Errors:
    errs: Errors = []
    name = selector.resource
    if volume and not selector.container_name:
        errs.append(field.required(fld_path.child("containerName"), ""))
    elif not name:
        errs.append(field.required(fld_path.child("resource"), ""))
    elif name not in _RESOURCES and not name.startswith(_HUGE_PAGES_PREFIXES):
        errs.append(field.not_supported(fld_path.child("resource"), name, _RESOURCES))
    return errs + _validate_divisor(name, selector.divisor, fld_path)


def _validate_divisor(name: str, divisor: Quantity | None, fld_path: field.Path) -> Errors:
    """Require that the divisor is one of the allowed units."""
    if divisor is None or divisor.is_zero():
        return []
    allowed: tuple[str, ...]
    match name.split(".", 1)[-1]:
        case "cpu":
            allowed, kind = _CPU_DIVISORS, "cpu"
        case "memory":
            allowed, kind = _BYTES_DIVISORS, "memory"
        case "ephemeral-storage":
            allowed, kind = _BYTES_DIVISORS, "local ephemeral storage"
        case other if other.startswith("hugepages-"):
            allowed, kind = _BYTES_DIVISORS, "hugepages"
        case _:
            return []
    if str(divisor) in allowed:
        return []
    values = "1m and 1" if kind == "cpu" else ", ".join(allowed)
    detail = f"only divisor's values {values} are supported with the {kind} resource"
    return [field.invalid(fld_path.child("divisor"), name, detail)]


def _validate_key_selector(selector: v1.ConfigMapKeySelector | v1.SecretKeySelector, fld_path: field.Path) -> Errors:
    messages = apimachineryvalidation.name_is_dns_subdomain(selector.name, False)
    errs = invalid_each(fld_path.child("name"), selector.name, messages)
    if not selector.key:
        errs.append(field.required(fld_path.child("key"), ""))
    else:
        errs += invalid_each(fld_path.child("key"), selector.key, validation.is_config_map_key(selector.key))
    return errs


def _validate_file_key_selector(selector: v1.FileKeySelector, fld_path: field.Path) -> Errors:
    errs: Errors = []
    if not selector.key:
        errs.append(field.required(fld_path.child("key"), ""))
    else:
        messages = validation.is_relaxed_env_var_name(selector.key)
        errs += invalid_each(fld_path.child("key"), selector.key, messages)
    if not selector.volume_name:
        errs.append(field.required(fld_path.child("volumeName"), ""))
    else:
        errs += validate_dns1123_label(selector.volume_name, fld_path.child("volumeName"))
    if not selector.path:
        errs.append(field.required(fld_path.child("path"), ""))
    else:
        errs += validate_path_no_backsteps(selector.path, fld_path.child("path"))
    return errs


def validate_env_from(sources: Sequence[v1.EnvFromSource], fld_path: field.Path) -> Errors:
    errs: Errors = []
    for i, source in enumerate(sources):
        path = fld_path.index(i)
        if source.prefix:
            messages = validation.is_relaxed_env_var_name(source.prefix)
            errs += invalid_each(path.child("prefix"), source.prefix, messages)
        if source.config_map_ref is not None:
            errs += _validate_env_source(source.config_map_ref.name, path.child("configMapRef"))
        if source.secret_ref is not None:
            errs += _validate_env_source(source.secret_ref.name, path.child("secretRef"))
        if source.config_map_ref is None and source.secret_ref is None:
            errs.append(field.invalid(fld_path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif source.config_map_ref is not None and source.secret_ref is not None:
            errs.append(field.invalid(fld_path, "", "may not have more than one field specified at a time"))
    return errs


def _validate_env_source(name: str, fld_path: field.Path) -> Errors:
    if not name:
        return [field.required(fld_path.child("name"), "")]
    return invalid_each(fld_path.child("name"), name, apimachineryvalidation.name_is_dns_subdomain(name, True))


def validate_downward_api_volume_file(item: v1.DownwardAPIVolumeFile, fld_path: field.Path) -> Errors:
    errs: Errors = [] if item.path else [field.required(fld_path.child("path"), "")]
    errs += validate_local_non_reserved_path(item.path, fld_path.child("path"))
    if item.field_ref is not None:
        errs += _validate_object_field_selector(item.field_ref, _VOLUME_FIELD_PATHS, fld_path.child("fieldRef"))
        if item.resource_field_ref is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errs.append(field.invalid(fld_path, "resource", detail))
    elif item.resource_field_ref is not None:
        path = fld_path.child("resourceFieldRef")
        errs += _validate_resource_field_selector(item.resource_field_ref, path, volume=True)
    else:
        errs.append(field.required(fld_path, "one of fieldRef and resourceFieldRef is required"))
    return errs + validate_file_mode(item.mode, fld_path.child("mode"))
