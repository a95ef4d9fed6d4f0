"""YAML or JSON documents to the dicts, lists and scalars that JSON knows.

Built on the parser's events and not on PyYAML's loaders: those resolve scalars differently from the Go
library, and recurse in C, so that a deeply nested file would end the process.

Go: staging/src/k8s.io/apimachinery/pkg/util/yaml/decoder.go (ToJSON), sigs.k8s.io/yaml/goyaml.v2/resolve.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

# A document may unfold its aliases to this many values, and nest so deep.
_MAX_VALUES: Final = 1_000_000
_MAX_DEPTH: Final = 200

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = object()
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    "<<": _MERGE,
}
_NUMBER_START: Final = frozenset("+-.0123456789")
_INT: Final = re.compile(r"([-+]?)(0[bB][01]+|0[oO][0-7]+|0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class YAMLError(ValueError):
    """Text that is not one YAML document, or holds what JSON cannot; the message names the line."""


def to_builtins(data: bytes | str, duplicates: list[tuple[str, int]] | None = None) -> Any:
    """The single document of `data`, None if it is empty.

    Keys of maps become text; of equal keys the last counts, and `duplicates` gets each with its line. Raises
    YAMLError for anything that is not YAML, for a second document, and for excessive nesting or aliasing.

    DIVERGES: Go reads the first document and silently drops the others.
    """
    found = _compose(data, duplicates)
    if len(found) > 1:
        raise YAMLError("the file holds several documents, expected one")
    return found[0] if found else None


def documents(data: bytes | str) -> list[Any]:
    """All documents of `data` but the empty ones, as to_builtins has them. Raises YAMLError."""
    return _compose(data, None)


def _compose(data: bytes | str, duplicates: list[tuple[str, int]] | None) -> list[Any]:
    try:
        return _Composer(data, duplicates).documents()
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise YAMLError(f"yaml: {where}{err.problem or err.context}") from err
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        raise YAMLError("yaml: " + " ".join(str(err).split())) from err


class _Composer:
    """Builds values from the events of one stream."""

    def __init__(self, data: bytes | str, duplicates: list[tuple[str, int]] | None) -> None:
        self._duplicates = duplicates
        self._events: Iterator[yaml.Event] = yaml.parse(data, Loader=yaml.CSafeLoader)
        self._anchors: dict[str, tuple[Any, int]] = {}  # value, and how many values it holds
        self._count = 0

    def documents(self) -> list[Any]:
        found = []
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors.clear()
                value = self._node(next(self._events), 0)
                if value is not None:
                    found.append(value)
        return found

    def _node(self, event: yaml.Event, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise YAMLError(f"yaml: line {_line(event)}: exceeded max depth of {_MAX_DEPTH}")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._count
        self._grow(1)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth)
        else:
            value = self._mapping(depth)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = (value, self._count - before)
        return value

    def _grow(self, values: int) -> None:
        self._count += values
        if self._count > _MAX_VALUES:
            raise YAMLError("yaml: document contains excessive aliasing")

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise YAMLError(f"yaml: line {_line(event)}: unknown anchor '{event.anchor}' referenced")
        value, size = self._anchors[event.anchor]
        self._grow(size)
        return value

    def _sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value = self._node(event, depth + 1)
            items.append("<<" if value is _MERGE else value)
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if key is _MERGE:
                _merge(merged, value, line)
                continue
            name = _key(key, line)
            if name in items and self._duplicates is not None:
                self._duplicates.append((name, line))
            items[name] = "<<" if value is _MERGE else value
        return merged | items if merged else items


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _merge(merged: dict[str, Any], value: Any, line: int) -> None:
    """Take in what a `<<` key names; of several maps the first counts."""
    for source in value if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            raise YAMLError(f"yaml: line {line}: map merge requires map or sequence of maps as the value")
        for key, item in source.items():
            merged.setdefault(key, item)


def _scalar(event: yaml.ScalarEvent) -> Any:
    tag = event.tag or ""
    if tag == "" and event.implicit[0]:
        return _resolve(event.value)
    kind = tag.removeprefix(_TAG)
    if tag == kind or kind in ("str", "timestamp", "binary"):
        return event.value
    value = _resolve(event.value)
    wanted: dict[str, Any] = {"bool": bool, "int": int, "float": (int, float), "null": type(None)}
    if kind not in wanted or not isinstance(value, wanted[kind]):
        raise YAMLError(f"yaml: line {_line(event)}: cannot decode `{event.value}` as a !!{kind}")
    return value


def _resolve(text: str) -> Any:
    """The value of an unquoted scalar. Dates and sexagesimal numbers stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    plain = text.replace("_", "")
    if match := _INT.fullmatch(plain):
        digits = match[2]
        # A leading zero alone means octal.
        octal = digits.isdigit() and digits.startswith("0")
        value = int(digits, 8 if octal else 0)
        return -value if match[1] == "-" else value
    if _FLOAT.fullmatch(plain):
        return float(plain)
    return text


def _key(key: Any, line: int) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case None:
            return "null"
        case int() | float():
            return str(key)
    raise YAMLError(f"yaml: line {line}: a map key must be a scalar")
