"""Test node selectors."""

from __future__ import annotations

import pytest

from pkg.api.core import v1
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.component_helpers.scheduling.corev1 import nodeaffinity

NODE = v1.Node(metadata=metav1.ObjectMeta(name="node", labels={"zone": "a", "size": "5", "empty": ""}))


def requirement(key: str, operator: str, *values: str) -> v1.NodeSelectorRequirement:
    return v1.NodeSelectorRequirement(key=key, operator=operator, values=list(values))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (("zone", "In", "b", "a"), True),
        (("zone", "In", "b"), False),
        (("other", "In", ""), False),
        (("empty", "In", ""), True),
        (("zone", "NotIn", "b"), True),
        (("zone", "NotIn", "a"), False),
        (("other", "NotIn", "a"), True),
        (("zone", "NotIn"), False),
        (("empty", "Exists"), True),
        (("other", "Exists"), False),
        (("zone", "Exists", "a"), False),
        (("other", "DoesNotExist"), True),
        (("zone", "DoesNotExist"), False),
        (("size", "Gt", "4"), True),
        (("size", "Gt", "5"), False),
        (("size", "Lt", "6"), True),
        (("size", "Lt", "5"), False),
        (("zone", "Gt", "4"), False),
        (("other", "Gt", "4"), False),
        (("size", "Gt", "4", "3"), False),
        (("zone", "Like", "a"), False),
        (("size", "Gt", "four"), False),
        (("size", "Gt", " 4"), False),
        (("zone", "NotIn", "not a value"), False),
        (("not a key", "DoesNotExist"), False),
    ],
)
def test_match_expressions(expression: tuple[str, ...], expected: bool) -> None:
    key, operator, *values = expression
    term = v1.NodeSelectorTerm(match_expressions=[requirement(key, operator, *values)])
    selector = v1.NodeSelector(node_selector_terms=[term])
    assert nodeaffinity.match_node_selector(selector, NODE) is expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (("metadata.name", "In", "node"), True),
        (("metadata.name", "In", "other"), False),
        (("metadata.name", "NotIn", "node"), False),
        (("metadata.name", "NotIn", "other"), True),
        (("metadata.name", "In", "node", "other"), False),
        (("metadata.name", "Exists", "node"), False),
        (("metadata.namespace", "In", "node"), False),
    ],
)
def test_match_fields(field: tuple[str, ...], expected: bool) -> None:
    key, operator, *values = field
    term = v1.NodeSelectorTerm(match_fields=[requirement(key, operator, *values)])
    selector = v1.NodeSelector(node_selector_terms=[term])
    assert nodeaffinity.match_node_selector(selector, NODE) is expected


def test_fields_of_a_node_without_a_name_are_not_looked_at() -> None:
    term = v1.NodeSelectorTerm(match_fields=[requirement("metadata.name", "In", "other")])
    selector = v1.NodeSelector(node_selector_terms=[term])
    assert nodeaffinity.match_node_selector(selector, v1.Node())


def test_terms_are_alternatives_and_their_requirements_are_not() -> None:
    zone_a, zone_b = requirement("zone", "In", "a"), requirement("zone", "In", "b")

    def matches(*terms: list[v1.NodeSelectorRequirement]) -> bool:
        selector = v1.NodeSelector(node_selector_terms=[v1.NodeSelectorTerm(match_expressions=term) for term in terms])
        return nodeaffinity.match_node_selector(selector, NODE)

    assert matches([zone_b], [zone_a])
    assert not matches([zone_a, zone_b])
    assert not matches([])
    assert not matches()


def test_required_node_affinity() -> None:
    pod = v1.Pod()
    assert nodeaffinity.get_required_node_affinity(pod).match(NODE)
    pod.spec.node_selector = {"zone": "a"}
    assert nodeaffinity.get_required_node_affinity(pod).match(NODE)
    pod.spec.node_selector = {"zone": "a", "size": "6"}
    assert not nodeaffinity.get_required_node_affinity(pod).match(NODE)
    assert not nodeaffinity.get_required_node_affinity(pod).match(None)
