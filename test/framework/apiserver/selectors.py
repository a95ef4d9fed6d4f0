"""Parse the label and field selectors of requests.

Go: k8s.io/apimachinery/pkg/labels/selector.go (Parse), k8s.io/apimachinery/pkg/fields/selector.go (ParseSelector)
"""

from __future__ import annotations

import re

from pkg.apimachinery import fields, labels

_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_SIGNS = {
    "=": labels.Operator.EQUALS,
    "==": labels.Operator.DOUBLE_EQUALS,
    "!=": labels.Operator.NOT_EQUALS,
    ">": labels.Operator.GREATER_THAN,
    "<": labels.Operator.LESS_THAN,
}


def parse_label_selector(text: str) -> labels.Selector:
    """Parse a label selector such as `a=b,c in (d,e),!f`. Raise ValueError with the reason if it is invalid."""
    if not text.strip():
        return labels.everything()
    try:
        return labels.Selector().add(*_Parser(_TOKEN.findall(text)).requirements())
    except ValueError as err:
        raise ValueError(f"unable to parse requirement: {err}") from err


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def requirements(self) -> list[labels.Requirement]:
        found = [self._requirement()]
        while self._peek() == ",":
            self._next()
            found.append(self._requirement())
        if token := self._peek():
            raise ValueError(f"found '{token}', expected: ',' or 'end of string'")
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _requirement(self) -> labels.Requirement:
        if self._peek() == "!":
            self._next()
            return labels.Requirement(self._identifier(), labels.Operator.DOES_NOT_EXIST)
        key = self._identifier()
        match self._peek():
            case "" | ",":
                return labels.Requirement(key, labels.Operator.EXISTS)
            case "in":
                self._next()
                return labels.Requirement(key, labels.Operator.IN, self._values())
            case "notin":
                self._next()
                return labels.Requirement(key, labels.Operator.NOT_IN, self._values())
            case sign if sign in _SIGNS:
                self._next()
                value = "" if self._peek() in ("", ",") else self._identifier()
                return labels.Requirement(key, _SIGNS[sign], (value,))
            case token:
                raise ValueError(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")

    def _identifier(self) -> str:
        token = self._next()
        if token in ("", "(", ")", ",", "!") or token in _SIGNS:
            raise ValueError(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> tuple[str, ...]:
        if (token := self._next()) != "(":
            raise ValueError(f"found '{token}' expected: '('")
        values = []
        while True:
            values.append("" if self._peek() in (",", ")") else self._identifier())
            match self._next():
                case ")":
                    return tuple(sorted(set(values)))
                case ",":
                    continue
                case token:
                    raise ValueError(f"found '{token}', expected: ',' or ')'")


def parse_field_selector(text: str) -> fields.Selector:
    """Parse a field selector such as `a=b,c!=d`. Raise ValueError if it is invalid.

    In a value, a backslash precedes a comma, an equals sign and a backslash.
    """
    terms = []
    for term in re.findall(r"(?:\\.|[^,\\])+", text):
        match = re.fullmatch(r"((?:\\.|[^=!\\])+)(==|!=|=)((?:\\.|[^=\\])*)", term)
        if match is None:
            raise ValueError(f"invalid selector: '{text}'; can't understand '{term}'")
        field, sign, value = match.groups()
        value = re.sub(r"\\(.)", r"\1", value)
        make = fields.one_term_not_equal_selector if sign == "!=" else fields.one_term_equal_selector
        terms.append(make(field, value))
    return fields.and_selectors(*terms)


def fields_used(text: str) -> list[str]:
    """Return the fields that a selector names."""
    return [match.group(1) for term in re.findall(r"(?:\\.|[^,\\])+", text) if (match := re.match(r"([^=!]+)", term))]
