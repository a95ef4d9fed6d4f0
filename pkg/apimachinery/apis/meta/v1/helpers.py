"""Turn the label selectors of API objects into selectors that match labels.

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
    """Return the selector, which selects nothing for None and everything for a selector without terms.

    Raise ValueError for invalid terms.
    """
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
