"""Convert YAML or JSON documents to the dicts, lists and scalars of JSON, and back.

The module uses the parser's events and not PyYAML's loaders. Those resolve scalars differently from the Go library, and
recurse in C, so a deeply nested file would crash the process.

Go: k8s.io/apimachinery/pkg/util/yaml/decoder.go (ToJSON), sigs.k8s.io/yaml/yaml.go, go.yaml.in/yaml/v2 (resolve.go,
decode.go)
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from pkg.golang import strconv

# `MAX_VALUES` is the maximum number of values in a stream of documents, with aliases expanded. `MAX_DEPTH` is the
# maximum nesting.
MAX_VALUES: Final = 1_000_000
MAX_DEPTH: Final = 200
# `MAX_ALIASED_TEXT` is the maximum number of characters that aliases and tags add to the text of a stream; a directive
# can define the start of a tag. Here all aliases of a text share it, but later uses repeat the text for each alias: the
# hash, conversions of the object, messages.
MAX_ALIASED_TEXT: Final = 10 << 20
# The parser compares each such directive with all previous ones, and no other thread runs meanwhile.
MAX_TAG_DIRECTIVES: Final = 100

_TAG: Final = "tag:yaml.org,2002:"
_TAG_DIRECTIVE: Final = "%TAG"
# The look-behind skips a directive after a character that cannot end a line. The patterns are for text or UTF-8, and
# for both byte orders of UTF-16. Looking behind is fast.
_TEXT_DIRECTIVE: Final = re.compile(r"%TAG(?<![\t -~]%TAG)")
_BYTES_DIRECTIVES: Final = (
    re.compile(rb"%TAG(?<![\t -~]%TAG)"),
    re.compile(rb"%\0T\0A\0G\0(?<![\t -~]\0%\0T\0A\0G\0)"),
    re.compile(rb"\0%\0T\0A\0G(?<!\0[\t -~]\0%\0T\0A\0G)"),
)
_MERGE: Final = object()
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    "<<": _MERGE,
}
_NUMBER_START: Final = frozenset("+-.0123456789")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
# From this value on, Go's encoding/json writes a float with an exponent, which is not read as an integer.
_EXPONENT_FROM: Final = 1e21
# A message quotes at most this many characters of an invalid value.
_QUOTED: Final = 100
_EXCESSIVE_ALIASING: Final = "yaml: document contains excessive aliasing"
_EXCESSIVE_TAGS: Final = "yaml: document contains too much text in tags"


class YAMLError(ValueError):
    """Signal that a text is not valid YAML, or contains what JSON cannot represent; the message names the line."""


def to_builtins(data: bytes | str, duplicates: list[tuple[str, int]] | None = None) -> Any:
    """Return the single document of `data`, or None if it is empty.

    Keys of maps become text. The last of several equal keys counts; `duplicates` receives each such key with its line.
    Raise YAMLError for invalid YAML, for a second document, and for excessive nesting or aliasing.

    DIVERGES (fault of Go): the kubelet refuses a file with several documents.
    Go: sigs.k8s.io/yaml/yaml.go, YAMLToJSON: the Go kubelet reads the first document and silently drops the others.
    Why: an operator who puts two pods or two configurations into one file would never learn why the second has no
    effect.
    Test: decoder_test.py:test_faults, kubelet/config/common_test.py:test_not_parsed
    """
    found = _compose(data, duplicates)
    if len(found) > 1:
        raise YAMLError("the file holds several documents, expected one")
    return found[0] if found else None


def documents(data: bytes | str) -> list[Any]:
    """Return all documents of `data` except empty ones; raise YAMLError as to_builtins does."""
    return _compose(data, None)


def dump(document: Any) -> str:
    """Return the document as YAML with sorted keys; text that would be read as another type is quoted."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=True)


class _Dumper(yaml.SafeDumper):
    """Dump YAML with quotes where our reader, which differs from PyYAML's, would not read text."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _resolve(text) is text else '"'
    return dumper.represent_scalar(_TAG + "str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _compose(data: bytes | str, duplicates: list[tuple[str, int]] | None) -> list[Any]:
    # As in Go, text that looks like JSON but is not valid JSON may still be YAML. JSON also has escapes that YAML
    # lacks.
    if duplicates is None and (found := _json(data)) is not None:
        return found
    _check_directives(data)
    try:
        return _Composer(data, duplicates).documents()
    except yaml.MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        where = f"line {mark.line + 1}: " if mark else ""
        raise YAMLError(f"yaml: {where}{err.problem or err.context}") from err
    except (yaml.YAMLError, UnicodeDecodeError) as err:
        raise YAMLError("yaml: " + " ".join(str(err).split())) from err


def _check_directives(data: bytes | str) -> None:
    """Raise YAMLError for too many tag directives.

    Every line that looks like a directive counts, even within text, because only the parser knows which ones are
    directives.
    """
    if isinstance(data, str):
        found = sum(1 for _ in _TEXT_DIRECTIVE.finditer(data))
    else:
        found = sum(1 for each in _BYTES_DIRECTIVES for _ in each.finditer(data))
    if found > MAX_TAG_DIRECTIVES:
        raise YAMLError(f"yaml: more than {MAX_TAG_DIRECTIVES} {_TAG_DIRECTIVE} directives")


def _json(data: bytes | str) -> list[Any] | None:
    """Return the document if it is a JSON object, in a list, or None otherwise."""
    if data[:_QUOTED].lstrip()[:1] not in ("{", b"{"):
        return None
    try:
        document = _json_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    _check_size(document)
    return [document]


def _check_size(document: Any) -> None:
    """Apply the limits for YAML to a JSON document."""
    level, count, depth = [document], 1, 0
    while level := [child for value in level for child in _children(value)]:
        depth, count = depth + 1, count + len(level)
        if depth > MAX_DEPTH:
            raise YAMLError(f"json: exceeded max depth of {MAX_DEPTH}")
        if count > MAX_VALUES:
            raise YAMLError(f"json: the document holds more than {MAX_VALUES} values")


def _children(value: Any) -> Any:
    match value:
        case dict():
            return value.values()
        case list():
            return value
    return ()


class _Anchor(NamedTuple):
    """Hold the value of an anchor, and the number of its values and characters with aliases expanded."""

    value: Any
    values: int
    text: int


class _Composer:
    """Build values from the events of one stream."""

    def __init__(self, data: bytes | str, duplicates: list[tuple[str, int]] | None) -> None:
        self._duplicates = duplicates
        self._events: Iterator[yaml.Event] = yaml.parse(data, Loader=yaml.CSafeLoader)
        self._anchors: dict[str, _Anchor] = {}
        # These fields count the values and characters so far, with aliases expanded, and the characters that aliases
        # add.
        self._count = self._text = self._aliased_text = 0

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
        if depth > MAX_DEPTH:
            raise YAMLError(f"yaml: line {_line(event)}: exceeded max depth of {MAX_DEPTH}")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        count, text = self._count, self._text
        self._grow(1)
        self._grow_aliased(len(getattr(event, "tag", None) or ""), _EXCESSIVE_TAGS)
        value: Any
        if isinstance(event, yaml.ScalarEvent):
            self._text += len(event.value)
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth)
        else:
            value = self._mapping(depth)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = _Anchor(value, self._count - count, self._text - text)
        return value

    def _grow(self, values: int) -> None:
        self._count += values
        if self._count > MAX_VALUES:
            raise YAMLError(_EXCESSIVE_ALIASING)

    def _grow_aliased(self, characters: int, message: str) -> None:
        self._aliased_text += characters
        if self._aliased_text > MAX_ALIASED_TEXT:
            raise YAMLError(message)

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise YAMLError(f"yaml: line {_line(event)}: unknown anchor '{event.anchor}' referenced")
        anchor = self._anchors[event.anchor]
        self._grow(anchor.values)
        self._text += anchor.text
        self._grow_aliased(anchor.text, _EXCESSIVE_ALIASING)
        return anchor.value

    def _sequence(self, depth: int) -> list[Any]:
        items = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            value = self._node(event, depth + 1)
            items.append("<<" if value is _MERGE else value)
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            line = _line(event)
            key = self._node(event, depth + 1)
            value = self._node(next(self._events), depth + 1)
            if key is _MERGE:
                for name, item in _merged(value, line).items():
                    self._set(items, name, item, line)
            else:
                self._set(items, _key(key, line), "<<" if value is _MERGE else value, line)
        return items

    def _set(self, items: dict[str, Any], name: str, value: Any, line: int) -> None:
        if name in items and self._duplicates is not None:
            self._duplicates.append((name, line))
        items[name] = value


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _merged(value: Any, line: int) -> dict[str, Any]:
    """Return the map that a `<<` key refers to; for several maps the first one takes precedence."""
    merged: dict[str, Any] = {}
    for source in reversed(value) if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            raise YAMLError(f"yaml: line {line}: map merge requires map or sequence of maps as the value")
        merged |= source
    return merged


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    tag = event.tag or ""
    if tag == "":
        return _number(_resolve(text), event) if event.implicit[0] else text
    kind = tag.removeprefix(_TAG)
    if kind == "binary":
        return _binary(event)
    if tag == kind or kind not in _KINDS:
        return text
    value = _resolve(text)
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise YAMLError(f"yaml: line {_line(event)}: cannot decode `{text[:_QUOTED]}` as a !!{kind}")
    return _number(value, event)


_KINDS: Final[dict[str, Any]] = {"bool": bool, "int": int, "float": (int, float), "null": type(None)}


def _binary(event: yaml.ScalarEvent) -> str:
    try:
        data = base64.b64decode("".join(event.value.splitlines()), validate=True)
    except (binascii.Error, ValueError) as err:
        raise YAMLError(f"yaml: line {_line(event)}: !!binary value contains invalid base64 data") from err
    return data.decode(errors="replace")


def _number(value: Any, event: yaml.ScalarEvent) -> Any:
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        raise YAMLError(f"yaml: line {_line(event)}: JSON has no value for `{event.value}`")
    return _json_number(value)


def _json_number(value: float) -> int | float:
    """Return the number as Go's encoding/json writes it, which does not distinguish 1 from 1.0."""
    return int(value) if value.is_integer() and abs(value) < _EXPONENT_FROM else value


_json_decoder = msgspec.json.Decoder(float_hook=lambda text: _json_number(strconv.parse_float(text)))


def _resolve(text: str) -> Any:
    """Return the value of an unquoted scalar, or `text` itself if it is text.

    Dates and sexagesimal numbers stay text.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if text[0] == ".":
        return _float(text, text)
    plain = text.replace("_", "")
    for parse in (strconv.parse_int, strconv.parse_uint):
        try:
            return parse(plain, 0)
        except strconv.NumError:
            pass
    return _float(plain, text)


def _float(plain: str, text: str) -> Any:
    """Return the float, or `text` if it is not a number or too large for a float."""
    try:
        return strconv.parse_float(plain) if _FLOAT.fullmatch(plain) else text
    except strconv.NumError:
        return text


def _key(key: Any, line: int) -> str:
    match key:
        case str():
            return key
        case bool():
            return "true" if key else "false"
        case int() if key < 2**63:
            return str(key)
        case float():
            return str(key)
    raise YAMLError(f"yaml: line {line}: a map key must be text, a number or a boolean")
