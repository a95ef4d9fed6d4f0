"""Terms `field=value` and `field!=value`, all of which must hold.

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
    """All terms must hold; `str` is what a request's fieldSelector takes. A missing field counts as empty."""

    terms: tuple[_Term, ...] = ()
    selects_nothing: bool = False

    def matches(self, fields: Mapping[str, str]) -> bool:
        return not self.selects_nothing and all(term.matches(fields) for term in self.terms)

    def empty(self) -> bool:
        """Whether it restricts nothing."""
        return not self.terms and not self.selects_nothing

    def requires_exact_match(self, field: str) -> str | None:
        """The value that a field must have, if the selector says so."""
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
    """Selects what has all these values."""
    return Selector(tuple(_Term(field, fields[field], True) for field in sorted(fields)))


def and_selectors(*selectors: Selector) -> Selector:
    """Selects what all of them select."""
    terms = tuple(term for selector in selectors for term in selector.terms)
    return Selector(terms, any(selector.selects_nothing for selector in selectors))


def escape_value(value: str) -> str:
    """With a backslash before what separates terms."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
