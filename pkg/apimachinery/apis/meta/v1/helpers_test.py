"""Test what the label selectors of objects select.

Go: k8s.io/apimachinery/pkg/apis/meta/v1/helpers_test.go
"""

from __future__ import annotations

import pytest

from pkg.apimachinery.apis.meta import v1 as metav1


def expression(key: str, operator: str, *values: str) -> metav1.LabelSelectorRequirement:
    return metav1.LabelSelectorRequirement(key=key, operator=operator, values=list(values))


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (metav1.LabelSelector(), ""),
        (metav1.LabelSelector(match_labels={"b": "2", "a": "1"}), "a=1,b=2"),
        (metav1.LabelSelector(match_expressions=[expression("a", "In", "2", "1")]), "a in (1,2)"),
        (metav1.LabelSelector(match_expressions=[expression("a", "NotIn", "1")]), "a notin (1)"),
        (
            metav1.LabelSelector(
                match_labels={"c": "3"}, match_expressions=[expression("a", "Exists"), expression("b", "DoesNotExist")]
            ),
            "a,!b,c=3",
        ),
    ],
)
def test_label_selector_as_selector(selector: metav1.LabelSelector, text: str) -> None:
    assert str(metav1.label_selector_as_selector(selector)) == text


def test_none_selects_nothing_and_empty_selects_everything() -> None:
    assert not metav1.label_selector_as_selector(None).matches({"a": "1"})
    assert metav1.label_selector_as_selector(metav1.LabelSelector()).matches({"a": "1"})


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (expression("a", "In"), "values set can't be empty"),
        (expression("a", "Like", "b"), '"Like" is not a valid label selector operator'),
    ],
)
def test_nonsense(bad: metav1.LabelSelectorRequirement, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        metav1.label_selector_as_selector(metav1.LabelSelector(match_expressions=[bad]))
