"""Read fields of a pod's metadata by path, for the downward API.

Go: pkg/fieldpath/fieldpath.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def format_map(m: Mapping[str, str]) -> str:
    """Return key="value" lines, sorted by key, with the values quoted as in Go."""
    return "\n".join(f"{key}={_quote(value)}" for key, value in sorted(m.items()))


def _quote(text: str) -> str:
    return f'"{"".join(map(_escape, text))}"'


def _escape(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def extract_field_path_as_string(obj: Any, field_path: str) -> str:
    """Return the field of an API object as text. Raise ValueError if the path is not supported."""
    metadata = obj.metadata
    if (split := split_maybe_subscripted_path(field_path)) is not None:
        return _extract_subscripted(metadata, field_path, *split)
    match field_path:
        case "metadata.annotations":
            return format_map(metadata.annotations)
        case "metadata.labels":
            return format_map(metadata.labels)
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            text: str = getattr(metadata, field_path.removeprefix("metadata."))
            return text
    raise ValueError(f"unsupported fieldPath: {field_path}")


def _extract_subscripted(metadata: Any, field_path: str, path: str, subscript: str) -> str:
    match path:
        case "metadata.annotations":
            values, key = metadata.annotations, subscript.lower()
        case "metadata.labels":
            values, key = metadata.labels, subscript
        case _:
            raise ValueError(f'fieldPath "{field_path}" does not support subscript')
    if not _is_qualified_name(key):
        raise ValueError(f'invalid key subscript in {field_path}: "{key}" is not a qualified name')
    text: str = values.get(subscript, "")
    return text


def _is_qualified_name(key: str) -> bool:
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= 63 and bool(_NAME.fullmatch(name))


def split_maybe_subscripted_path(field_path: str) -> tuple[str, str] | None:
    """Split "metadata.labels['key']" into path and key. Return None for a path without a key."""
    path, bracket, subscript = field_path.removesuffix("']").partition("['")
    if not field_path.endswith("']") or not bracket or not path:
        return None
    return path, subscript
