"""What a store of small keyed data must do.

Go: pkg/kubelet/util/store/store.go
"""

from __future__ import annotations

import re
from typing import Protocol

_KEY_MAX_LENGTH = 250
_KEY = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")


class ErrKeyNotFound(KeyError):
    """The key is not in the store."""

    def __str__(self) -> str:
        return f"key is not found: {self.args[0]}"


class Store(Protocol):
    """Data by key. Safe from any thread. A bad key raises ValueError, a failing disk OSError."""

    def write(self, key: str, data: bytes) -> None: ...

    def read(self, key: str) -> bytes:
        """Raises ErrKeyNotFound if the key is not there."""
        ...

    def delete(self, key: str) -> None:
        """A key that is not there is no error."""
        ...

    def list(self) -> list[str]: ...


def validate_key(key: str) -> None:
    """Raise ValueError unless key is 1 to 250 of [A-Za-z0-9._-] with a letter or digit at both ends."""
    if len(key) > _KEY_MAX_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f'invalid key: "{key}"')
