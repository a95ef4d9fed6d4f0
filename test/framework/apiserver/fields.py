"""Which fields objects have, and what becomes of others: they are dropped, and the client may be told or refused.

Go: sigs.k8s.io/json (UnmarshalStrict), k8s.io/apimachinery/pkg/runtime/serializer/json/json.go,
k8s.io/apiserver/pkg/endpoints/handlers/rest.go (fieldValidation)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from pkg.apimachinery.util import yaml as utilyaml
from pkg.apimachinery.util.validation import field

from . import errors
from .interfaces import Object, Request

# Made by hack/update-api-fields, which says how to read it.
_FIELDS = Path(__file__).with_name("api_fields.json")
_MOST_FAULTS = 100
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class Directive(StrEnum):
    """What a client wants to hear of fields that are unknown or there twice."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


def directive_of(request: Request) -> Directive:
    """Raises ApiError 422 for one that there is not."""
    text = request.parameter("fieldValidation") or Directive.WARN
    try:
        return Directive(text)
    except ValueError:
        fault = field.not_supported(field.Path("fieldValidation"), text, sorted(["", *Directive]))
        raise errors.invalid(_OPTIONS[request.verb], "meta.k8s.io", "", [fault]) from None


class _Doubled(dict[str, Any]):
    """An object whose text had some names more than once. The last value of each is the one that counts."""

    names: Sequence[str] = ()


def decode_json(data: bytes, directive: Directive) -> Any:
    """Raises ValueError. Unless they are to be ignored, `prune` finds names that the text has twice."""
    decoded = msgspec.json.decode(data)
    return decoded if directive is Directive.IGNORE else json.loads(data, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> Object:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    doubled = _Doubled(found)
    names = [name for name, _ in pairs]
    doubled.names = [name for name in found if names.count(name) > 1]
    return doubled


def decode_yaml(data: bytes) -> tuple[Any, list[str]]:
    """The document, and what is wrong with it although it can be read. Raises ValueError."""
    duplicates: list[tuple[str, int]] = []
    decoded = utilyaml.to_builtins(data, duplicates)
    lines = "".join(f'\n  line {line}: key "{key}" already set in map' for key, line in duplicates)
    return decoded, [f"yaml: unmarshal errors:{lines}"] if lines else []


def prune(group_version: str, kind: str, obj: Object) -> list[str]:
    """Take out of an object what its kind has no field for; what a strict decoder has to say, in the object's order.

    Kinds of which no fields are known, and objects that say they are of another kind, are left alone.
    """
    types = _types()
    group, _, version = group_version.rpartition("/")
    name = types.kinds.get(f"{group}/{version}/{kind}")
    if name is None or obj.get("kind") not in (None, "", kind):
        return []
    faults: dict[str, None] = {}
    _prune(types.types, types.types[name], obj, "", faults)
    return list(faults)[:_MOST_FAULTS]


class _Types(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str]]


@cache
def _types() -> _Types:
    return msgspec.json.decode(_FIELDS.read_bytes(), type=_Types)


def _prune(
    types: dict[str, dict[str, str]], fields: dict[str, str], obj: Object, prefix: str, faults: dict[str, None]
) -> None:
    doubled = obj.names if isinstance(obj, _Doubled) else ()
    for name in list(obj):
        type_ = fields.get(name)
        if type_ is None:
            faults[f'unknown field "{prefix}{name}"'] = None
            del obj[name]
            continue
        if name in doubled:
            faults[f'duplicate field "{prefix}{name}"'] = None
        if type_:
            _prune_value(types, type_, obj[name], f"{prefix}{name}", faults)


def _prune_value(types: dict[str, dict[str, str]], type_: str, value: Any, path: str, faults: dict[str, None]) -> None:
    """Values that are not as their type has them are for others to refuse."""
    match type_[0], value:
        case "[", list():
            for i, item in enumerate(value):
                _prune_value(types, type_[1:], item, f"{path}[{i}]", faults)
        case "{", dict():
            for name in value.names if isinstance(value, _Doubled) else ():
                faults[f'duplicate field "{path}.{name}"'] = None
            if len(type_) > 1:
                for name, item in value.items():
                    _prune_value(types, type_[1:], item, f"{path}.{name}", faults)
        case "[" | "{", _:
            pass
        case _, dict():
            _prune(types, types[type_], value, f"{path}.", faults)


def duplicates(value: Any, path: str = "") -> list[str]:
    """What a strict decoder has to say of a value of no particular kind."""
    found: list[str] = []
    match value:
        case dict():
            doubled = value.names if isinstance(value, _Doubled) else ()
            for name, item in value.items():
                at = f"{path}.{name}" if path else name
                found += [f'duplicate field "{at}"'] if name in doubled else []
                found += duplicates(item, at)
        case list():
            for i, item in enumerate(value):
                found += duplicates(item, f"{path}[{i}]")
    return found


def decoding_error(faults: Sequence[str]) -> str:
    """What a strict decoder says that refuses."""
    return f"strict decoding error: {', '.join(faults)}"
