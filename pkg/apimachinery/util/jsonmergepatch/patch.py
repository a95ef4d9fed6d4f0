"""Applying and making JSON merge patches.

Go: k8s.io/apimachinery/pkg/util/jsonmergepatch/patch.go

Nothing that is passed in is changed; results share their unchanged parts with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pkg.apimachinery.util import mergepatch


def merge_patch(original: bytes, patch: bytes) -> bytes:
    """The document with the patch applied. Raises mergepatch.BadJSONDocError."""
    return msgspec.json.encode(merge_map_patch(_decode(original), _decode(patch)), order="sorted")


def merge_map_patch(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The object with the patch applied: null removes, objects are merged, anything else replaces."""
    merged = dict(original)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            before = merged.get(key)
            merged[key] = merge_map_patch(before if isinstance(before, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def create_merge_map_patch(original: dict[str, Any], modified: dict[str, Any]) -> dict[str, Any]:
    """The patch that makes `modified` of `original`."""
    patch: dict[str, Any] = {key: None for key in original if key not in modified}
    for key, value in modified.items():
        before = original.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := create_merge_map_patch(before, value):
                patch[key] = inner
        elif key not in original or before != value or type(before) is not type(value):
            patch[key] = value
    return patch


def _decode(document: bytes) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(document)
    except msgspec.DecodeError as err:
        raise mergepatch.BadJSONDocError(str(err)) from err
    if not isinstance(decoded, dict):
        raise mergepatch.BadJSONDocError()
    return decoded
