"""Test field selectors."""

from __future__ import annotations

from pkg.apimachinery import fields


def test_terms() -> None:
    equal = fields.one_term_equal_selector("spec.nodeName", "n1")
    unequal = fields.one_term_not_equal_selector("status.phase", "Failed")
    both = fields.and_selectors(equal, unequal)
    assert str(both) == "spec.nodeName=n1,status.phase!=Failed"
    assert both.matches({"spec.nodeName": "n1"})
    assert not both.matches({"spec.nodeName": "n1", "status.phase": "Failed"})
    assert not both.matches({"spec.nodeName": "n2"})
    assert both.requires_exact_match("spec.nodeName") == "n1"
    assert both.requires_exact_match("status.phase") is None


def test_set_is_sorted_and_escaped() -> None:
    selector = fields.selector_from_set({"b": "x,y=z\\", "a": ""})
    assert str(selector) == r"a=,b=x\,y\=z\\"
    assert selector.matches({"b": "x,y=z\\"}), "a missing field is empty"


def test_everything_and_nothing() -> None:
    assert fields.everything().matches({}) and fields.everything().empty()
    assert not fields.and_selectors(fields.everything(), fields.nothing()).matches({})
