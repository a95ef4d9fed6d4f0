"""Test the parsing of selectors."""

from __future__ import annotations

import pytest

from framework.apiserver.selectors import fields_used, parse_field_selector, parse_label_selector


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a = b , c != d", {"a": "b"}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b)", {}, False),
        ("a notin (b,c)", {"a": "c"}, False),
        ("a notin (b),d", {"d": "x"}, True),
        ("a=", {"a": ""}, True),
        ("a>1", {"a": "2"}, True),
        ("a<1", {"a": "2"}, False),
        ("x.io/a-b_c=v.1", {"x.io/a-b_c": "v.1"}, True),
    ],
)
def test_label_selectors(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_label_selector(text).matches(labels) is matches


@pytest.mark.parametrize("text", ["a===b", "a in b", "a in (b", ",", "a b", "=b", "a,", "!", "-a=b", "a>b"])
def test_bad_label_selectors(text: str) -> None:
    with pytest.raises(ValueError, match="unable to parse requirement: "):
        parse_label_selector(text)


@pytest.mark.parametrize(
    ("text", "fields", "matches"),
    [
        ("", {}, True),
        ("a.b=c", {"a.b": "c"}, True),
        ("a==c", {"a": "d"}, False),
        ("a!=None", {"a": "1.2.3.4"}, True),
        ("a!=None,b=", {"a": "None"}, False),
        ("a=", {}, True),
        (r"a=x\,y\=z", {"a": "x,y=z"}, True),
    ],
)
def test_field_selectors(text: str, fields: dict[str, str], matches: bool) -> None:
    assert parse_field_selector(text).matches(fields) is matches


def test_bad_field_selectors() -> None:
    with pytest.raises(ValueError, match="invalid selector: 'a'; can't understand 'a'"):
        parse_field_selector("a")


def test_the_fields_that_a_selector_names() -> None:
    assert fields_used("spec.nodeName=n,status.phase!=Failed") == ["spec.nodeName", "status.phase"]
