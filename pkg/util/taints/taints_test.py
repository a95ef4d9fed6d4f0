"""Test parsing taints.

Go: pkg/util/taints/taints_test.go
"""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.util import taints


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ([], []),
        (
            ["foo=abc:NoSchedule", "bar=abc:NoSchedule"],
            [("foo", "abc", "NoSchedule"), ("bar", "abc", "NoSchedule")],
        ),
        (["foo:NoExecute", "foo:NoSchedule"], [("foo", "", "NoExecute"), ("foo", "", "NoSchedule")]),
        (["foo=:PreferNoSchedule"], [("foo", "", "PreferNoSchedule")]),
    ],
)
def test_parse(spec: list[str], expected: list[tuple[str, str, str]]) -> None:
    assert [(taint.key, taint.value, taint.effect) for taint in taints.parse_taints(spec)] == expected


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (["foo=abc"], "invalid taint spec: foo=abc"),
        (["foo"], "invalid taint spec: foo"),
        (["foo=abc=xyz:NoSchedule"], "invalid taint spec: foo=abc=xyz:NoSchedule"),
        (["foo=abc:xyz:NoSchedule"], "invalid taint spec: foo=abc:xyz:NoSchedule"),
        (["foo=abc:Sometimes"], "invalid taint effect: Sometimes, unsupported taint effect"),
        (["=abc:NoSchedule"], "invalid taint spec: =abc:NoSchedule"),
        (["foo=a b:NoSchedule"], "invalid taint spec: foo=a b:NoSchedule"),
        (
            ["foo=abc:NoSchedule", "foo=def:NoSchedule"],
            "duplicated taints with the same key and effect: foo=def:NoSchedule",
        ),
    ],
)
def test_parse_refuses(spec: list[str], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        taints.parse_taints(spec)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("taint", "message"),
    [
        (v1.Taint(key="nodeTaint", value="v", effect="NoSchedule"), ""),
        (v1.Taint(key="nodeTaint", effect=""), ""),
        (v1.Taint(key="", effect="NoSchedule"), "invalid taint key: "),
        (v1.Taint(key="a", value="b c", effect="NoSchedule"), "invalid taint value: "),
        (v1.Taint(key="a", effect="x"), "invalid taint effect: x"),
    ],
)
def test_check(taint: v1.Taint, message: str) -> None:
    if not message:
        taints.check_taint_validation(taint)
        return
    with pytest.raises(ValueError) as caught:
        taints.check_taint_validation(taint)
    assert str(caught.value).startswith(message)
