"""Represent errors that name their field, in the words of the API server.

Go: k8s.io/apimachinery/pkg/util/validation/field
"""

from pkg.apimachinery.util.validation.field.errors import (
    OMIT_VALUE,
    Error,
    ErrorList,
    ErrorType,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
    too_many,
)
from pkg.apimachinery.util.validation.field.path import Path

__all__ = [
    "OMIT_VALUE",
    "Error",
    "ErrorList",
    "ErrorType",
    "Path",
    "duplicate",
    "forbidden",
    "invalid",
    "not_found",
    "not_supported",
    "required",
    "too_long",
    "too_many",
]
