"""Test JSON merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from pkg.apimachinery.util import jsonmergepatch

CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b", "b": 1}, {"a": None}, {"b": 1}),
    ({"a": [1]}, {"a": [2]}, {"a": [2]}),
    ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
    ({"a": 1}, {"a": {"b": {"c": 2}}}, {"a": {"b": {"c": 2}}}),
    ({}, {}, {}),
    ({}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
]


@pytest.mark.parametrize(("original", "patch", "modified"), CASES)
def test_merge(original: dict[str, Any], patch: dict[str, Any], modified: dict[str, Any]) -> None:
    assert jsonmergepatch.merge_map_patch(original, patch) == modified
