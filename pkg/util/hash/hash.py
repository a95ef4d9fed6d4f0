"""Hash whole objects.

Go: pkg/util/hash/hash.go, hash/fnv (New128a, New32a)
"""

from __future__ import annotations

import json
from typing import Final, Protocol

from pkg.apimachinery.runtime import codec

_OFFSET: Final = 0x6C62272E07BB014262B821756295C58D
_PRIME: Final = 0x0000000001000000000000000000013B
_MASK: Final = (1 << 128) - 1


class Hash(Protocol):
    """Define an incremental hash."""

    def reset(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def sum(self) -> bytes: ...


class FNV128a:
    """Compute the 128-bit FNV-1a hash."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = _OFFSET

    def reset(self) -> None:
        self._state = _OFFSET

    def write(self, data: bytes) -> None:
        state = self._state
        for byte in data:
            state = (state ^ byte) * _PRIME & _MASK
        self._state = state

    def sum(self) -> bytes:
        """Return the hash of the written data: 16 bytes, the most significant one first."""
        return self._state.to_bytes(16, "big")


def fnv32a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash."""
    state = 0x811C9DC5
    for byte in data:
        state = (state ^ byte) * 0x01000193 & 0xFFFFFFFF
    return state


def deep_hash_object(hasher: Hash, obj: object) -> None:
    """Reset the hasher and feed it the whole API object; the order of map keys does not matter.

    DIVERGES (platform): in this kubelet, the UID of a static pod is a hash of its JSON.
    Go: pkg/util/hash/hash.go, DeepHashObject: in the Go kubelet, it is a hash of a dump of the internal Go types.
    Why: those types exist only in Go. A static pod gets a different UID than from the Go kubelet, and restarts when one
    kubelet replaces the other on a node.
    Test: hash_test.py:test_deep_hash_object_is_of_json
    """
    hasher.reset()
    text = json.dumps(codec.to_builtins(obj), sort_keys=True, separators=(",", ":"))
    hasher.write(text.encode())
