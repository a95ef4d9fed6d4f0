"""Do a node's labels and name match what a pod demands of its node?

Go: k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pkg.api.core import v1

_METADATA_NAME = "metadata.name"


@dataclass(frozen=True, slots=True)
class RequiredNodeAffinity:
    """A pod's node selector and required node affinity. Both must match."""

    label_selector: dict[str, str]
    node_selector: v1.NodeSelector | None

    def match(self, node: v1.Node | None) -> bool:
        """DIVERGES: a senseless selector just matches nothing; Go returns an error too, which nobody uses."""
        labels = {} if node is None else node.metadata.labels
        if any(labels.get(key) != value for key, value in self.label_selector.items()):
            return False
        if self.node_selector is None:
            return True
        return node is not None and match_node_selector(self.node_selector, node)


def get_required_node_affinity(pod: v1.Pod) -> RequiredNodeAffinity:
    """What the pod demands, as opposed to prefers."""
    affinity = None if pod.spec.affinity is None else pod.spec.affinity.node_affinity
    selector = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    return RequiredNodeAffinity(pod.spec.node_selector, selector)


def match_node_selector(selector: v1.NodeSelector, node: v1.Node) -> bool:
    """Whether one of the terms matches; an empty term does not."""
    return any(_match_term(term, node) for term in selector.node_selector_terms)


def _match_term(term: v1.NodeSelectorTerm, node: v1.Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    if not all(_match_label(requirement, node.metadata.labels) for requirement in term.match_expressions):
        return False
    name = node.metadata.name
    return all(_match_field(requirement, name) for requirement in term.match_fields)


def _match_label(requirement: v1.NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    values = requirement.values
    match requirement.operator:
        case v1.NODE_SELECTOR_OP_IN:
            return value is not None and value in values
        case v1.NODE_SELECTOR_OP_NOT_IN:
            return bool(values) and value not in values
        case v1.NODE_SELECTOR_OP_EXISTS:
            return value is not None and not values
        case v1.NODE_SELECTOR_OP_DOES_NOT_EXIST:
            return value is None and not values
        case v1.NODE_SELECTOR_OP_GT | v1.NODE_SELECTOR_OP_LT if value is not None and len(values) == 1:
            return _compare(value, requirement.operator, values[0])
    return False


def _compare(value: str, operator: str, bound: str) -> bool:
    try:
        left, right = int(value), int(bound)
    except ValueError:
        return False
    return left > right if operator == v1.NODE_SELECTOR_OP_GT else left < right


def _match_field(requirement: v1.NodeSelectorRequirement, name: str) -> bool:
    """The name is the only field there is."""
    if len(requirement.values) != 1:
        return False
    equal = requirement.key == _METADATA_NAME and requirement.values[0] == name
    match requirement.operator:
        case v1.NODE_SELECTOR_OP_IN:
            return equal or not name
        case v1.NODE_SELECTOR_OP_NOT_IN:
            return not equal
    return False
