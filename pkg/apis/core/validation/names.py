"""Validate the names and paths that occur in all parts of the validation.

Go: pkg/apis/core/validation/names.go, and the small functions of validation.go
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pkg.apimachinery.api import validation as apimachineryvalidation
from pkg.apimachinery.api.resource import Quantity
from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field

Errors = list[field.Error]

IS_NEGATIVE_ERROR_MSG = "must be greater than or equal to 0"
IS_NOT_INTEGER_ERROR_MSG = "must be an integer"
IS_NOT_POSITIVE_ERROR_MSG = "must be greater than zero"
FILE_MODE_ERROR_MSG = "must be a number between 0 and 0777 (octal), both inclusive"

_SUBDOMAIN_MAX_LENGTH = 253
_LABEL_MAX_LENGTH = 63


def invalid_each(fld_path: field.Path, value: object, messages: Iterable[str]) -> Errors:
    """Return one Invalid error for each message about the value."""
    return [field.invalid(fld_path, value, message) for message in messages]


def validate_dns1123_label(value: str, fld_path: field.Path) -> Errors:
    return invalid_each(fld_path, value, validation.is_dns1123_label(value))


def validate_dns1123_subdomain(value: str, fld_path: field.Path) -> Errors:
    return invalid_each(fld_path, value, validation.is_dns1123_subdomain(value))


def validate_dns1123_subdomain_with_underscore(value: str, fld_path: field.Path) -> Errors:
    return invalid_each(fld_path, value, validation.is_dns1123_subdomain_with_underscore(value))


def validate_qualified_name(value: str, fld_path: field.Path) -> Errors:
    return invalid_each(fld_path, value, validation.is_qualified_name(value))


def validate_nonnegative_field(value: int, fld_path: field.Path) -> Errors:
    return [field.invalid(fld_path, value, IS_NEGATIVE_ERROR_MSG)] if value < 0 else []


def validate_positive_field(value: int, fld_path: field.Path) -> Errors:
    return [field.invalid(fld_path, value, IS_NOT_POSITIVE_ERROR_MSG)] if value <= 0 else []


def validate_nonnegative_quantity(value: Quantity, fld_path: field.Path) -> Errors:
    return [field.invalid(fld_path, str(value), IS_NEGATIVE_ERROR_MSG)] if value.sign() < 0 else []


def validate_positive_quantity_value(value: Quantity, fld_path: field.Path) -> Errors:
    return [field.invalid(fld_path, str(value), IS_NOT_POSITIVE_ERROR_MSG)] if value.sign() <= 0 else []


def validate_file_mode(mode: int | None, fld_path: field.Path) -> Errors:
    if mode is not None and not 0 <= mode <= 0o777:
        return [field.invalid(fld_path, mode, FILE_MODE_ERROR_MSG)]
    return []


def validate_user_annotations(annotations: Mapping[str, str], fld_path: field.Path) -> Errors:
    """Validate annotations for a certificate request, whose keys must have a domain."""
    errs: Errors = []
    for key in annotations:
        messages = validation.is_qualified_name(key.lower())
        errs += invalid_each(fld_path, key.lower(), messages)
        if not messages and "/" not in key:
            detail = 'must be a domain-prefixed key (such as "acme.io/foo")'
            errs.append(field.invalid(fld_path, key.lower(), detail))
    return errs + apimachineryvalidation.validate_annotations_size(annotations, fld_path)


def validate_local_descending_path(target_path: str, fld_path: field.Path) -> Errors:
    """Validate a path that must stay below its starting point."""
    errs: Errors = []
    if target_path.startswith("/"):
        errs.append(field.invalid(fld_path, target_path, "must be a relative path"))
    return errs + validate_path_no_backsteps(target_path, fld_path)


def validate_path_no_backsteps(target_path: str, fld_path: field.Path) -> Errors:
    if ".." in target_path.split("/"):
        return [field.invalid(fld_path, target_path, "must not contain '..'")]
    return []


def validate_local_non_reserved_path(target_path: str, fld_path: field.Path) -> Errors:
    """Validate a descending path, which must not use a name that atomic writing needs."""
    errs = validate_local_descending_path(target_path, fld_path)
    if target_path.startswith("..") and not target_path.startswith("../"):
        errs.append(field.invalid(fld_path, target_path, "must not start with '..'"))
    return errs


def is_kubernetes_signer_name(signer_name: str) -> bool:
    host_name = signer_name.partition("/")[0]
    return host_name == "kubernetes.io" or host_name.endswith(".kubernetes.io")


def validate_signer_name(fld_path: field.Path, signer_name: str) -> Errors:
    """Validate a signer's name, which has the form domain/path with a dot in the domain."""
    if not signer_name:
        return [field.required(fld_path, "")]
    segments = signer_name.split("/")
    if len(segments) != 2:
        detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [field.invalid(fld_path, signer_name, detail)]
    domain, path = segments
    errs: Errors = []
    if len(domain) > _SUBDOMAIN_MAX_LENGTH:
        errs.append(field.too_long(fld_path, "", _SUBDOMAIN_MAX_LENGTH))
    errs += _first_bad_label(fld_path, domain, [(x, validation.is_dns1123_label(x)) for x in domain.split(".")])
    if "." not in domain:
        detail = "should be a domain with at least two segments separated by dots"
        errs.append(field.invalid(fld_path, domain, detail))
    errs += _first_bad_label(fld_path, path, [(x, validation.is_dns1123_subdomain(x)) for x in path.split(".")])
    max_length = 2 * _SUBDOMAIN_MAX_LENGTH + _LABEL_MAX_LENGTH + 2
    if len(signer_name) > max_length:
        errs.append(field.too_long(fld_path, "", max_length))
    return errs


def _first_bad_label(fld_path: field.Path, value: str, labels: list[tuple[str, list[str]]]) -> Errors:
    for label, messages in labels:
        if messages:
            return [field.invalid(fld_path, value, f'validating label "{label}": {m}') for m in messages]
    return []


def validate_cluster_trust_bundle_name(name: str) -> list[str]:
    """Validate a bundle's name.

    The name of a signer's bundle contains the signer's name: domain:path:name. Other names contain no colon.
    """
    signer, colon, rest = name.rpartition(":")
    if not colon:
        return apimachineryvalidation.name_is_dns_subdomain(name, False)
    if not signer:
        return ['ClusterTrustBundle without signer name must not have ":" in its name']
    return apimachineryvalidation.name_is_dns_subdomain(rest, False)
