"""Apply JSON merge patches.

Go: k8s.io/apimachinery/pkg/util/jsonmergepatch/patch.go
"""

from __future__ import annotations

from typing import Any


def merge_map_patch(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the object with the patch applied: null removes a field, objects are merged, other values replace.

    The arguments are not changed; the result shares unchanged parts with them.
    """
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
