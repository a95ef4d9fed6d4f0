"""Define a store of small data by key.

Go: pkg/kubelet/util/store/store.go
"""

from __future__ import annotations

import re
from typing import Protocol

_KEY_MAX_LENGTH = 250
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class ErrKeyNotFound(KeyError):
    """Signal that the key is not in the store."""

    def __str__(self) -> str:
        return f"key is not found: {self.args[0]}"


class Store(Protocol):
    """Define a store of data by key. All methods are thread-safe.

    An invalid key raises ValueError, and a failing disk raises OSError.
    """

    def write(self, key: str, data: bytes) -> None: ...

    def read(self, key: str) -> bytes:
        """Return the data. Raise ErrKeyNotFound if the key is missing."""
        ...

    def delete(self, key: str) -> None:
        """Remove the key if it is present."""
        ...

    def list(self) -> list[str]: ...


def validate_key(key: str) -> None:
    """Raise ValueError unless the key has 1 to 250 characters of [A-Za-z0-9._-] and a letter or digit at both ends."""
    if len(key) > _KEY_MAX_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f'invalid key: "{key}"')
