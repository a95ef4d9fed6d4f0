"""Select objects by the fields that the API server indexes.

Go: k8s.io/apimachinery/pkg/fields
"""

from pkg.apimachinery.fields.selector import (
    Selector,
    and_selectors,
    escape_value,
    everything,
    nothing,
    one_term_equal_selector,
    one_term_not_equal_selector,
    selector_from_set,
)

__all__ = [
    "Selector",
    "and_selectors",
    "escape_value",
    "everything",
    "nothing",
    "one_term_equal_selector",
    "one_term_not_equal_selector",
    "selector_from_set",
]
