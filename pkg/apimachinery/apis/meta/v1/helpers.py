"""What label selectors of objects select.

Go: k8s.io/apimachinery/pkg/apis/meta/v1/helpers.go
"""

from __future__ import annotations

from pkg.apimachinery import labels
from pkg.apimachinery.apis.meta.v1.types import LabelSelector

_OPERATORS = {
    "In": labels.Operator.IN,
    "NotIn": labels.Operator.NOT_IN,
    "Exists": labels.Operator.EXISTS,
    "DoesNotExist": labels.Operator.DOES_NOT_EXIST,
}


def label_selector_as_selector(selector: LabelSelector | None) -> labels.Selector:
    """None selects nothing, one without terms everything. Raises ValueError for terms that make no sense."""
    if selector is None:
        return labels.nothing()
    requirements = [
        labels.Requirement(key, labels.Operator.EQUALS, (value,)) for key, value in selector.match_labels.items()
    ]
    for expression in selector.match_expressions:
        if expression.operator not in _OPERATORS:
            raise ValueError(f'"{expression.operator}" is not a valid label selector operator')
        operator = _OPERATORS[expression.operator]
        requirements.append(labels.Requirement(expression.key, operator, tuple(expression.values)))
    return labels.everything().add(*requirements)


__all__ = ["label_selector_as_selector"]
