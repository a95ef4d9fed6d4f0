"""Test label selectors."""

from __future__ import annotations

import pytest

from pkg.apimachinery import labels
from pkg.apimachinery.labels import Operator, Requirement


@pytest.mark.parametrize(
    ("operator", "values", "present", "expected"),
    [
        (Operator.IN, ("a", "b"), "b", True),
        (Operator.IN, ("a", "b"), "c", False),
        (Operator.IN, ("a",), None, False),
        (Operator.EQUALS, ("a",), "a", True),
        (Operator.EQUALS, ("",), "", True),
        (Operator.EQUALS, ("",), None, False),
        (Operator.DOUBLE_EQUALS, ("a",), "b", False),
        (Operator.NOT_IN, ("a",), "b", True),
        (Operator.NOT_IN, ("a",), "a", False),
        (Operator.NOT_IN, ("a",), None, True),
        (Operator.NOT_EQUALS, ("a",), None, True),
        (Operator.EXISTS, (), "", True),
        (Operator.EXISTS, (), None, False),
        (Operator.DOES_NOT_EXIST, (), None, True),
        (Operator.DOES_NOT_EXIST, (), "x", False),
        (Operator.GREATER_THAN, ("2",), "10", True),
        (Operator.GREATER_THAN, ("2",), "2", False),
        (Operator.GREATER_THAN, ("2",), "many", False),
        (Operator.GREATER_THAN, ("2",), None, False),
        (Operator.LESS_THAN, ("2",), "1", True),
        (Operator.LESS_THAN, ("2",), "10", False),
    ],
)
def test_requirement(operator: Operator, values: tuple[str, ...], present: str | None, expected: bool) -> None:
    have = {"other": "a"} if present is None else {"key": present}
    assert Requirement("key", operator, values).matches(have) is expected


@pytest.mark.parametrize(
    ("key", "operator", "values", "message"),
    [
        ("bad key", Operator.EXISTS, (), 'key: Invalid value: "bad key"'),
        ("k", Operator.EXISTS, ("a",), "values set must be empty"),
        ("k", Operator.IN, (), "values set can't be empty"),
        ("k", Operator.EQUALS, ("a", "b"), "one single value"),
        ("k", Operator.GREATER_THAN, ("1", "2"), "exactly one value is required"),
        ("k", Operator.LESS_THAN, ("x",), "the value must be an integer"),
        ("k", Operator.IN, ("ok", "not ok"), r'values\[1\]\[k\]: Invalid value: "not ok"'),
    ],
)
def test_requirements_that_make_no_sense(key: str, operator: Operator, values: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Requirement(key, operator, values)


def test_selector() -> None:
    selector = labels.selector_from_set({"b": "2", "a": "1"})
    assert str(selector) == "a=1,b=2"
    assert selector.matches({"a": "1", "b": "2", "c": "3"}) and not selector.matches({"a": "1"})
    more = selector.add(Requirement("aa", Operator.NOT_IN, ("y", "x")), Requirement("z", Operator.DOES_NOT_EXIST))
    assert str(more) == "a=1,aa notin (x,y),b=2,!z"
    assert labels.everything().matches({}) and labels.everything().empty()
    assert not labels.nothing().matches({}) and not labels.nothing().empty()
