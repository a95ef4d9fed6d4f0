"""Check whether a node's labels and name match the requirements of a pod.

Go: k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pkg.api.core import v1
from pkg.apimachinery import labels

_METADATA_NAME = "metadata.name"
_OPERATORS = {
    v1.NODE_SELECTOR_OP_IN: labels.Operator.IN,
    v1.NODE_SELECTOR_OP_NOT_IN: labels.Operator.NOT_IN,
    v1.NODE_SELECTOR_OP_EXISTS: labels.Operator.EXISTS,
    v1.NODE_SELECTOR_OP_DOES_NOT_EXIST: labels.Operator.DOES_NOT_EXIST,
    v1.NODE_SELECTOR_OP_GT: labels.Operator.GREATER_THAN,
    v1.NODE_SELECTOR_OP_LT: labels.Operator.LESS_THAN,
}


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """Hold a pod's node selector and required node affinity, both of which must match."""

    label_selector: dict[str, str]
    node_selector: v1.NodeSelector | None

    def match(self, node: v1.Node | None) -> bool:
        """Report whether the node matches; an invalid selector matches nothing.

        Go also returns an error, which no caller uses.
        """
        found = {} if node is None else node.metadata.labels
        if any(found.get(key) != value for key, value in self.label_selector.items()):
            return False
        if self.node_selector is None:
            return True
        return node is not None and match_node_selector(self.node_selector, node)


def get_required_node_affinity(pod: v1.Pod) -> RequiredNodeAffinity:
    """Return the pod's requirements, without its preferences."""
    affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
    selector = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    return RequiredNodeAffinity(pod.spec.node_selector, selector)


def match_node_selector(selector: v1.NodeSelector, node: v1.Node) -> bool:
    """Report whether one of the terms matches; an empty term does not."""
    return any(_match_term(term, node) for term in selector.node_selector_terms)


def _match_term(term: v1.NodeSelectorTerm, node: v1.Node) -> bool:
    """Report whether the term matches; an empty or invalid term matches nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    try:
        expressions = [_requirement(each) for each in term.match_expressions]
        fields = [_field_requirement(each) for each in term.match_fields]
    except ValueError:
        return False
    values = {_METADATA_NAME: node.metadata.name} if node.metadata.name else {}
    return all(each.matches(node.metadata.labels) for each in expressions) and (
        not values or all(each.matches(values) for each in fields)
    )


def _requirement(requirement: v1.NodeSelectorRequirement) -> labels.Requirement:
    """Return the requirement on a label; raise ValueError if it is invalid."""
    operator = _OPERATORS.get(requirement.operator)
    if operator is None:
        raise ValueError(f'operator: Unsupported value: "{requirement.operator}"')
    return labels.Requirement(requirement.key, operator, tuple(requirement.values))


@dataclass(frozen=True, slots=True)
class _FieldRequirement:
    """Describe the value that a field of the node must have, or must not have."""

    field: str
    value: str
    must_be_equal: bool

    def matches(self, values: Mapping[str, str]) -> bool:
        return (values.get(self.field, "") == self.value) is self.must_be_equal


def _field_requirement(requirement: v1.NodeSelectorRequirement) -> _FieldRequirement:
    """Return the requirement on a field; raise ValueError if it is invalid."""
    if requirement.operator not in (v1.NODE_SELECTOR_OP_IN, v1.NODE_SELECTOR_OP_NOT_IN):
        raise ValueError(f'operator: Unsupported value: "{requirement.operator}"')
    if len(requirement.values) != 1:
        raise ValueError(f"values: Invalid value: {requirement.values}: must have one element")
    equal = requirement.operator == v1.NODE_SELECTOR_OP_IN
    return _FieldRequirement(requirement.key, requirement.values[0], equal)
