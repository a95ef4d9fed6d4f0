"""Select objects by terms `field=value` and `field!=value`, all of which must hold.

Go: k8s.io/apimachinery/pkg/fields/selector.go
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class _Term:
    field: str
    value: str
    equal: bool

    def matches(self, fields: Mapping[str, str]) -> bool:
        return (fields.get(self.field, "") == self.value) is self.equal

    def __str__(self) -> str:
        return f"{self.field}{'=' if self.equal else '!='}{escape_value(self.value)}"


@dataclass(slots=True, frozen=True)
class Selector:
    """Select objects for which all terms hold; a missing field counts as empty.

    `str` returns the text for a request's fieldSelector.
    """

    terms: tuple[_Term, ...] = ()
    selects_nothing: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        return not self.selects_nothing and all(term.matches(fields) for term in self.terms)

    def empty(self) -> bool:
        """Report whether the selector matches everything."""
        return not self.terms and not self.selects_nothing

    def requires_exact_match(self, field: str) -> str | None:
        """Return the value that the selector requires for a field, or None."""
        return next((term.value for term in self.terms if term.equal and term.field == field), None)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))


def everything() -> Selector:
    return Selector()


def nothing() -> Selector:
    return Selector(selects_nothing=True)


def one_term_equal_selector(field: str, value: str) -> Selector:
    return Selector((_Term(field, value, True),))


def one_term_not_equal_selector(field: str, value: str) -> Selector:
    return Selector((_Term(field, value, False),))


def selector_from_set(fields: Mapping[str, str]) -> Selector:
    """Return a selector for objects that have all these values."""
    return Selector(tuple(_Term(field, fields[field], True) for field in sorted(fields)))


def and_selectors(*selectors: Selector) -> Selector:
    """Return a selector for objects that all of the selectors match."""
    terms = tuple(term for selector in selectors for term in selector.terms)
    return Selector(terms, any(selector.selects_nothing for selector in selectors))


def escape_value(value: str) -> str:
    """Escape the characters that separate terms with a backslash."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
