"""Find out how the fields of a type are merged.

Go: k8s.io/apimachinery/pkg/util/strategicpatch/meta.go, k8s.io/apimachinery/third_party/forked/golang/json/fields.go
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

RETAIN_KEYS_STRATEGY = "retainKeys"


@dataclass(frozen=True, slots=True)
class PatchMeta:
    """Describe how one field is merged; `type` is the struct of its value or of its elements."""

    type: type | None = None
    strategy: str = ""
    merge_key: str = ""
    retain_keys: bool = False


_PLAIN = PatchMeta()


def lookup(type_: type | None, key: str) -> PatchMeta:
    """Return how the field `key` of a struct is merged.

    A field that the type lacks, and every field if the type is None, is merged as plain JSON. Go refuses a map or a
    list in such a field. The kubelet's patches are made from its types, and have no such fields.
    """
    return _fields(type_).get(key, _PLAIN) if type_ is not None else _PLAIN


@cache
def _fields(type_: type) -> dict[str, PatchMeta]:
    tags: dict[str, tuple[str, str]] = getattr(type_, "PATCH_TAGS", {})
    return {
        field.encode_name: _meta(_struct_of(field.type), *tags.get(field.encode_name, ("", "")))
        for field in msgspec.structs.fields(type_)
    }


def _meta(type_: type | None, strategies: str, merge_key: str) -> PatchMeta:
    names = [name for name in strategies.split(",") if name]
    others = [name for name in names if name != RETAIN_KEYS_STRATEGY]
    return PatchMeta(type_, others[0] if others else "", merge_key, RETAIN_KEYS_STRATEGY in names)


def _struct_of(hint: Any) -> type | None:
    """Return the struct in X, X | None and list[X], or None for scalars and for maps, whose keys are not fields."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint
    if typing.get_origin(hint) in (list, typing.Union, types.UnionType):
        return next((found for arg in typing.get_args(hint) if (found := _struct_of(arg))), None)
    return None
