"""Hold the header fields of a request or a response.

Go: net/http/header.go
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_NOT_IN_VALUES = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def check_field(name: str, value: str) -> None:
    """Raise ValueError for a field that would break the head, with the message of Go's client.

    The message does not contain the value, which may be a token. Go: golang.org/x/net/http/httpguts
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f'net/http: invalid header field name "{name}"')
    if _NOT_IN_VALUES.search(value):
        raise ValueError(f'net/http: invalid header field value for "{name}"')


class Headers:
    """Hold fields under case-insensitive names, in the order of arrival. A name may have several values.

    The class is not thread-safe.
    """

    __slots__ = ("_fields",)

    def __init__(self, items: Iterable[tuple[str, str]] = ()) -> None:
        # The keys are names in lower case; each value keeps the name as it was written.
        self._fields: dict[str, list[tuple[str, str]]] = {}
        for name, value in items:
            self.add(name, value)

    def get(self, name: str, default: str = "") -> str:
        """Return the first value."""
        fields = self._fields.get(name.lower())
        return fields[0][1] if fields else default

    def get_all(self, name: str) -> list[str]:
        return [value for _, value in self._fields.get(name.lower(), ())]

    def set(self, name: str, value: str) -> None:
        """Make this the only value."""
        self._fields[name.lower()] = [(name, value)]

    def add(self, name: str, value: str) -> None:
        self._fields.setdefault(name.lower(), []).append((name, value))

    def delete(self, name: str) -> None:
        self._fields.pop(name.lower(), None)

    def items(self) -> Iterator[tuple[str, str]]:
        for fields in self._fields.values():
            yield from fields

    def has_token(self, name: str, token: str) -> bool:
        """Report whether a comma-separated field such as Connection contains the token, in any case."""
        token = token.lower()
        return any(each.strip().lower() == token for value in self.get_all(name) for each in value.split(","))

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._fields

    def __repr__(self) -> str:
        return f"Headers({list(self.items())!r})"
