"""Represent errors about single fields, and lists of them.

Go: k8s.io/apimachinery/pkg/util/validation/field/errors.go
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from pkg import klog
from pkg.apimachinery.util.validation.field.path import Path


class ErrorType(enum.Enum):
    """List the types of errors; the value is the text in the message."""

    NOT_FOUND = "Not found"
    REQUIRED = "Required value"
    DUPLICATE = "Duplicate value"
    INVALID = "Invalid value"
    NOT_SUPPORTED = "Unsupported value"
    FORBIDDEN = "Forbidden"
    TOO_LONG = "Too long"
    TOO_MANY = "Too many"

    def __str__(self) -> str:
        return self.value


# When this is passed as bad_value, the message omits the value.
OMIT_VALUE = object()

_WITHOUT_VALUE = {
    ErrorType.REQUIRED,
    ErrorType.FORBIDDEN,
    ErrorType.TOO_LONG,
}


class Error(ValueError):
    """Represent an error with the text `field: type: "value": detail`."""

    def __init__(self, type: ErrorType, field: Path | None, bad_value: Any, detail: str = "") -> None:
        self.type = type
        self.field = "<nil>" if field is None else str(field)
        self.bad_value = bad_value
        self.detail = detail
        super().__init__()

    def __str__(self) -> str:
        # The text is built on demand, because values and details may be long and a manifest may have many errors.
        return f"{self.field}: {self.error_body()}"

    def error_body(self) -> str:
        """Return the message without the field."""
        parts = [str(self.type)]
        if self.type not in _WITHOUT_VALUE and self.bad_value is not OMIT_VALUE:
            parts.append(_render(self.bad_value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


class ErrorList(list[Error]):
    """Hold the errors that a validation found."""


def not_found(path: Path | None, value: Any) -> Error:
    return Error(ErrorType.NOT_FOUND, path, value)


def required(path: Path | None, detail: str = "") -> Error:
    return Error(ErrorType.REQUIRED, path, "", detail)


def duplicate(path: Path | None, value: Any) -> Error:
    return Error(ErrorType.DUPLICATE, path, value)


def invalid(path: Path | None, value: Any, detail: str) -> Error:
    return Error(ErrorType.INVALID, path, value, detail)


def not_supported(path: Path | None, value: Any, valid_values: Iterable[str]) -> Error:
    """Return an error that lists the supported values in the given order."""
    supported = ", ".join(klog.quote(str(valid)) for valid in valid_values)
    return Error(ErrorType.NOT_SUPPORTED, path, value, f"supported values: {supported}" if supported else "")


def forbidden(path: Path | None, detail: str) -> Error:
    return Error(ErrorType.FORBIDDEN, path, "", detail)


def too_long(path: Path | None, value: Any, max_length: int) -> Error:
    """Return an error that omits the value; the length is in bytes."""
    detail = f"may not be more than {_count(max_length, 'byte')}" if max_length >= 0 else "value is too long"
    return Error(ErrorType.TOO_LONG, path, "<value omitted>", detail)


def too_many(path: Path | None, actual: int, maximum: int) -> Error:
    """Return an error; a negative number means "unknown", and the message omits it."""
    detail = f"must have at most {_count(maximum, 'item')}" if maximum >= 0 else "has too many items"
    return Error(ErrorType.TOO_MANY, path, actual if actual >= 0 else OMIT_VALUE, detail)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _render(value: Any) -> str:
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, str):
        return klog.quote(value)
    return msgspec.json.encode(value, enc_hook=str).decode()
