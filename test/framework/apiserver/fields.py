"""Drop fields that an object's kind does not have, and warn or refuse the client, as the client chooses.

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

# hack/update-api-fields creates this file and documents its format.
_FIELDS = Path(__file__).with_name("api_fields.json")
_MOST_FAULTS = 100
_OPTIONS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class Directive(StrEnum):
    """Define how the server treats unknown and duplicate fields, as the client chooses."""

    IGNORE = "Ignore"
    WARN = "Warn"
    STRICT = "Strict"


def directive_of(request: Request) -> Directive:
    """Return the directive of a request. Raise ApiError 422 if there is no such directive."""
    text = request.parameter("fieldValidation") or Directive.WARN
    try:
        return Directive(text)
    except ValueError:
        fault = field.not_supported(field.Path("fieldValidation"), text, sorted(["", *Directive]))
        raise errors.invalid(_OPTIONS[request.verb], "meta.k8s.io", "", [fault]) from None


class _Doubled(dict[str, Any]):
    """Represent an object whose text has some names more than once. The last value of each such name counts."""

    names: Sequence[str] = ()


def decode_json(data: bytes, directive: Directive) -> Any:
    """Decode JSON. Raise ValueError if it is invalid. Unless the directive is IGNORE, `prune` finds duplicate names."""
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
    """Decode YAML, and return the document and its errors that do not prevent decoding. Raise ValueError for others."""
    duplicates: list[tuple[str, int]] = []
    decoded = utilyaml.to_builtins(data, duplicates)
    lines = "".join(f'\n  line {line}: key "{key}" already set in map' for key, line in duplicates)
    return decoded, [f"yaml: unmarshal errors:{lines}"] if lines else []


def prune(group_version: str, kind: str, obj: Object) -> list[str]:
    """Remove the fields that an object's kind does not have, and return the errors of a strict decoder.

    The errors are in the object's order. The function does not change objects of a kind whose fields are unknown, and
    objects that claim another kind.
    """
    types = _types()
    group, _, version = group_version.rpartition("/")
    name = types.kinds.get(f"{group}/{version}/{kind}")
    if name is None or obj.get("kind") not in (None, "", kind):
        return []
    pruning = _Pruning(types.types)
    pruning.take_from(obj, types.types[name], "")
    return list(pruning.faults)[:_MOST_FAULTS]


class _Types(msgspec.Struct):
    kinds: dict[str, str]
    types: dict[str, dict[str, str]]


@cache
def _types() -> _Types:
    return msgspec.json.decode(_FIELDS.read_bytes(), type=_Types)


class _Pruning:
    """Walk once through an object. `faults` has the errors, each once."""

    def __init__(self, types: dict[str, dict[str, str]]) -> None:
        self._types = types
        self.faults: dict[str, None] = {}

    def take_from(self, obj: Object, known: dict[str, str], prefix: str) -> None:
        doubled = obj.names if isinstance(obj, _Doubled) else ()
        for name in list(obj):
            type_ = known.get(name)
            if type_ is None:
                self.faults[f'unknown field "{prefix}{name}"'] = None
                del obj[name]
                continue
            if name in doubled:
                self.faults[f'duplicate field "{prefix}{name}"'] = None
            if type_:
                self._look_at(obj[name], type_, f"{prefix}{name}")

    def _look_at(self, value: Any, type_: str, path: str) -> None:
        """Check a value of this type. A value of another type is not reported here, because other code refuses it."""
        match type_[0], value:
            case "[", list():
                for i, item in enumerate(value):
                    self._look_at(item, type_[1:], f"{path}[{i}]")
            case "{", dict():
                self._look_at_map(value, type_[1:], path)
            case "[" | "{", _:
                pass
            case _, dict():
                self.take_from(value, self._types[type_], f"{path}.")

    def _look_at_map(self, value: Object, type_: str, path: str) -> None:
        for name in value.names if isinstance(value, _Doubled) else ():
            self.faults[f'duplicate field "{path}.{name}"'] = None
        for name, item in value.items() if type_ else ():
            self._look_at(item, type_, f"{path}.{name}")


def duplicates(value: Any, path: str = "") -> list[str]:
    """Return a strict decoder's errors for a value of no particular kind."""
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
    """Return the message of a strict decoder's refusal."""
    return f"strict decoding error: {', '.join(faults)}"
