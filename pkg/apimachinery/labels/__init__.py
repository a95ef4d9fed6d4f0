"""Select objects by their labels.

Go: k8s.io/apimachinery/pkg/labels
"""

from pkg.apimachinery.labels.selector import (
    Operator,
    Requirement,
    Selector,
    everything,
    nothing,
    selector_from_set,
)

__all__ = ["Operator", "Requirement", "Selector", "everything", "nothing", "selector_from_set"]
