"""Convert between the document that users write and the structs that the kubelet reads.

The versioned form of the configuration is the document itself: dicts and lists with wire names, and durations as text.
Files contain it, drop-ins are merged into it, and `configz` shows it.

Go has a second set of structs for the versioned form, and generated conversions. The document does the same with one
declaration for each field.

Go: pkg/kubelet/apis/config/scheme/scheme.go, pkg/kubelet/apis/config/v1beta1/zz_generated.conversion.go
"""

from __future__ import annotations

import datetime
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

import msgspec

from kubelet.apis.config.types import KubeletConfiguration
from pkg.apimachinery.api.resource import Quantity, parse_quantity
from pkg.apimachinery.runtime import codec
from pkg.component_base.cli.flag import format_duration, parse_duration

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"

Document = dict[str, Any]

_INT_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1), "uint32": (0, 2**32 - 1)}
_DURATIONS = ("duration", "duration-or-nanoseconds")


class StrictDecodingError(ValueError):
    """Report all faults of a document, each with the path of its field."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__("strict decoding error: " + ", ".join(faults))


@dataclass(frozen=True, slots=True)
class LenientDocument:
    """Hold a document without its unknown fields, and the faults that were ignored."""

    document: Document
    duplicates: list[str]
    unknown: list[str]

    @property
    def faults(self) -> list[str]:
        return [*self.duplicates, *self.unknown]


def decode(
    data: bytes,
    kind: str = KIND,
    type_: type[msgspec.Struct] = KubeletConfiguration,
    api_versions: Sequence[str] = (API_VERSION,),
) -> Document:
    """Read a document, check it against the type, and report all faults at once.

    The result lacks apiVersion and kind, and keeps fields that are null: null means "not set", or "remove" in a patch.
    Raise ValueError or StrictDecodingError.
    """
    found = decode_leniently(data, kind, type_, api_versions)
    if found.faults:
        raise StrictDecodingError(found.faults)
    return found.document


def decode_leniently(
    data: bytes,
    kind: str = KIND,
    type_: type[msgspec.Struct] = KubeletConfiguration,
    api_versions: Sequence[str] = (API_VERSION,),
) -> LenientDocument:
    """Read a document like `decode`, but drop unknown fields, and use the last of duplicate fields.

    Raise ValueError, or StrictDecodingError if a value is invalid.
    """
    # This module is imported lazily because only configuration files need it, and its import is slow.
    from pkg.apimachinery.util import yaml

    duplicates: list[tuple[str, int]] = []
    document = yaml.to_builtins(data, duplicates)
    if not isinstance(document, dict):
        raise ValueError(f"expected an object of kind {kind}, got {_type_name(document)}")
    check_kind(document, kind, api_versions)
    fields = {key: value for key, value in document.items() if key not in ("apiVersion", "kind")}
    twice = [f'duplicate field "{key}" in line {line}' for key, line in duplicates]
    unknown = [f'unknown field "{path}"' for path in _prune(fields, type_, "")]
    wrong: list[str] = []
    _convert(fields, type_, "", wrong)
    if wrong:
        raise StrictDecodingError([*twice, *unknown, *wrong])
    return LenientDocument(fields, twice, unknown)


def to_internal(document: Document) -> KubeletConfiguration:
    """Convert a document to structs. Raise StrictDecodingError."""
    return convert(document, KubeletConfiguration)


T = typing.TypeVar("T", bound=msgspec.Struct)


def convert(document: Document, type_: type[T]) -> T:
    """Convert a document to structs of any configuration type. Raise StrictDecodingError."""
    faults: list[str] = []
    result: T = _convert(document, type_, "", faults)
    if faults:
        raise StrictDecodingError(faults)
    return result


def to_versioned(kc: KubeletConfiguration) -> Document:
    """Convert structs to a document with every field that has a value."""
    return typing.cast(Document, _to_wire(kc, KubeletConfiguration))


def wire_path(attribute_path: str) -> str:
    """Convert `authentication.x509.client_ca_file` to `authentication.x509.clientCAFile`."""
    struct: Any = KubeletConfiguration
    names = []
    for attribute in attribute_path.split("."):
        field, hint = _fields_by_attribute(struct)[attribute]
        names.append(field.encode_name)
        struct = _unwrap_optional(hint)
    return ".".join(names)


def check_kind(document: Mapping[str, Any], kind: str, api_versions: Sequence[str]) -> None:
    """Raise ValueError for a document with another kind or version, or without one."""
    api_version, got = document.get("apiVersion"), document.get("kind")
    if not api_version or not got:
        missing = "apiVersion" if not api_version else "kind"
        raise ValueError(f"Object '{missing}' is missing: expected apiVersion: {api_versions[0]}, kind: {kind}")
    if got != kind or api_version not in api_versions:
        expected = " or ".join(api_versions)
        raise ValueError(f'no kind "{got}" is registered for version "{api_version}": expected {expected}, {kind}')


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, tuple[msgspec.structs.FieldInfo, Any]]:
    """Return the fields and their declared types by wire name."""
    hints = typing.get_type_hints(struct, include_extras=True)
    return {field.encode_name: (field, hints[field.name]) for field in msgspec.structs.fields(struct)}


@cache
def _fields_by_attribute(struct: type[msgspec.Struct]) -> dict[str, tuple[msgspec.structs.FieldInfo, Any]]:
    return {field.name: (field, hint) for field, hint in _fields(struct).values()}


def _unwrap_optional(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint


def _prune(value: Any, hint: Any, path: str) -> list[str]:
    """Remove unknown fields from the value, and return their paths."""
    hint = _unwrap_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    unknown: list[str] = []
    match value:
        case list() if origin is list:
            for i, item in enumerate(value):
                unknown += _prune(item, args[0], f"{path}[{i}]")
        case dict() if origin is dict:
            for key, item in value.items():
                unknown += _prune(item, args[1], f"{path}.{key}")
        case dict() if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            known = _fields(hint)
            for key, item in list(value.items()):
                child = f"{path}.{key}" if path else str(key)
                if key in known:
                    unknown += _prune(item, known[key][1], child)
                else:
                    unknown.append(child)
                    del value[key]
    return unknown


def _convert(value: Any, hint: Any, path: str, faults: list[str]) -> Any:
    """Convert the value to the declared type, and record faults; after a fault the result is unusable."""
    hint = _unwrap_optional(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _convert_struct(value, hint, path, faults)
    if origin is list and isinstance(value, list):
        return [_convert(item, args[0], f"{path}[{i}]", faults) for i, item in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {
            str(key): _convert(item, args[1], f"{path}.{key}", faults)
            for key, item in value.items()
            if item is not None
        }
    try:
        return _convert_scalar(value, hint)
    except (ValueError, TypeError) as err:
        faults.append(f"{path}: {err}")
        return None


def _convert_struct(value: Any, struct: type[msgspec.Struct], path: str, faults: list[str]) -> Any:
    if not isinstance(value, dict):
        faults.append(f"{path}: expected an object, got {_type_name(value)}")
        return None
    known = _fields(struct)
    arguments = {}
    for key, item in value.items():
        child = f"{path}.{key}" if path else str(key)
        if key not in known:
            faults.append(f'unknown field "{child}"')
        elif item is not None:
            field, hint = known[key]
            arguments[field.name] = _convert(item, hint, child, faults)
    return struct(**arguments) if not faults else None


def _convert_scalar(value: Any, hint: Any) -> Any:
    if typing.get_origin(hint) is Annotated:
        marker = typing.get_args(hint)[1]
        return _duration(value, marker) if marker in _DURATIONS else _integer(value, marker)
    if hint is Quantity and isinstance(value, str | int | float) and not isinstance(value, bool):
        return parse_quantity(str(value))
    if hint is datetime.datetime and isinstance(value, str):
        return codec.convert(value, datetime.datetime)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if hint in (bool, str) and isinstance(value, hint):
        return value
    raise TypeError(f"expected {_hint_name(hint)}, got {_type_name(value)}")


def _integer(value: Any, marker: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected {marker}, got {_type_name(value)}")
    low, high = _INT_RANGES[marker]
    if not low <= value <= high:
        raise ValueError(f"{value} is out of range for {marker}")
    return value


def _duration(value: Any, marker: str) -> float:
    if isinstance(value, str):
        return parse_duration(value)
    if marker == "duration-or-nanoseconds" and isinstance(value, int) and not isinstance(value, bool):
        return value / 1e9
    raise TypeError(f'expected a duration such as "1m30s", got {_type_name(value)}')


def _to_wire(value: Any, hint: Any) -> Any:
    hint = _unwrap_optional(hint)
    if isinstance(value, msgspec.Struct):
        return {
            name: _to_wire(item, field_hint)
            for name, (field, field_hint) in _fields(type(value)).items()
            if (item := getattr(value, field.name)) is not None
        }
    if isinstance(value, list):
        return [_to_wire(item, typing.get_args(hint)[0]) for item in value]
    if isinstance(value, dict):
        return {key: _to_wire(item, typing.get_args(hint)[1]) for key, item in value.items()}
    if typing.get_origin(hint) is Annotated and typing.get_args(hint)[1] in _DURATIONS:
        return format_duration(value)
    if isinstance(value, Quantity | datetime.datetime):
        return codec.to_builtins(value)
    return value


def _hint_name(hint: Any) -> str:
    origin = typing.get_origin(hint)
    if origin in (list, dict):
        return "a list" if origin is list else "an object"
    return {bool: "true or false", str: "a string", float: "a number", Quantity: "a quantity"}.get(hint, "a time")


def _type_name(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return f"boolean {str(value).lower()}"
        case int() | float():
            return f"number {value}"
        case str():
            return f'string "{value}"'
        case list():
            return "a list"
        case _:
            return "an object"
