"""Validate the names of objects.

Go: k8s.io/apimachinery/pkg/api/validation/generic.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.apimachinery.util import validation
from pkg.apimachinery.util.validation import field

IS_NEGATIVE_ERROR_MSG = "must be greater than or equal to 0"

# The function receives a name, and whether the name is only a prefix. It returns the errors.
ValidateNameFunc = Callable[[str, bool], list[str]]


def name_is_dns_subdomain(name: str, prefix: bool) -> list[str]:
    return validation.is_dns1123_subdomain(_mask_trailing_dash(name) if prefix else name)


def name_is_dns_label(name: str, prefix: bool) -> list[str]:
    return validation.is_dns1123_label(_mask_trailing_dash(name) if prefix else name)


validate_namespace_name = name_is_dns_label


def _mask_trailing_dash(name: str) -> str:
    """Replace a trailing dash, which a prefix may have and a name may not."""
    return name[:-2] + "a" if len(name) > 1 and name.endswith("-") else name


def validate_nonnegative_field(value: int, fld_path: field.Path) -> field.ErrorList:
    if value >= 0:
        return field.ErrorList()
    return field.ErrorList([field.invalid(fld_path, value, IS_NEGATIVE_ERROR_MSG)])
