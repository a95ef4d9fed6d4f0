"""Test the text of errors about fields."""

from __future__ import annotations

import pytest

from pkg.apimachinery.util import errors
from pkg.apimachinery.util.validation import field

PATH = field.Path("spec").child("containers").index(0).child("name")


@pytest.mark.parametrize(
    ("err", "expected"),
    [
        (field.invalid(PATH, "A", "no"), 'spec.containers[0].name: Invalid value: "A": no'),
        (field.invalid(PATH, 5, "no"), "spec.containers[0].name: Invalid value: 5: no"),
        (field.invalid(PATH, True, "no"), "spec.containers[0].name: Invalid value: true: no"),
        (field.invalid(PATH, None, "no"), "spec.containers[0].name: Invalid value: null: no"),
        (field.invalid(PATH, {"a": [1]}, "no"), 'spec.containers[0].name: Invalid value: {"a":[1]}: no'),
        (field.required(PATH, "must be set"), "spec.containers[0].name: Required value: must be set"),
        (field.required(PATH), "spec.containers[0].name: Required value"),
        (field.duplicate(PATH, "a"), 'spec.containers[0].name: Duplicate value: "a"'),
        (field.not_found(PATH, "a"), 'spec.containers[0].name: Not found: "a"'),
        (field.forbidden(PATH, "not here"), "spec.containers[0].name: Forbidden: not here"),
        (
            field.not_supported(PATH, "x", ["b", "a"]),
            'spec.containers[0].name: Unsupported value: "x": supported values: "b", "a"',
        ),
        (field.not_supported(PATH, "x", []), 'spec.containers[0].name: Unsupported value: "x"'),
        (field.too_long(PATH, "x", 5), "spec.containers[0].name: Too long: may not be more than 5 bytes"),
        (field.too_long(PATH, "x", 1), "spec.containers[0].name: Too long: may not be more than 1 byte"),
        (field.too_long(PATH, "x", -1), "spec.containers[0].name: Too long: value is too long"),
        (field.too_many(PATH, 3, 1), "spec.containers[0].name: Too many: 3: must have at most 1 item"),
        (field.too_many(PATH, -1, -1), "spec.containers[0].name: Too many: has too many items"),
        (field.invalid(None, "A", "no"), '<nil>: Invalid value: "A": no'),
    ],
)
def test_messages(err: field.Error, expected: str) -> None:
    assert str(err) == expected


def test_path() -> None:
    path = field.Path("a", "b").key("k.x").index(2).child("c", "d")
    assert str(path) == "a.b[k.x][2].c.d"


def test_aggregate_of_one_reads_like_it() -> None:
    aggregate = errors.new_aggregate([None, ValueError("bad"), KeyError("bad")])
    assert aggregate is not None and str(errors.Aggregate([ValueError("bad")])) == "bad"
    assert isinstance(aggregate.subgroup(KeyError), errors.Aggregate)
    assert errors.new_aggregate([None]) is None
