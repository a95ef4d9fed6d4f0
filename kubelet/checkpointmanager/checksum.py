"""The checksum of a checkpoint's data, the same that Go makes.

Go: pkg/kubelet/checkpointmanager/checksum/checksum.go
"""

from __future__ import annotations

from kubelet.checkpointmanager.errors import CorruptCheckpointError

_FNV_OFFSET = 0x811C9DC5
_FNV_PRIME = 0x01000193


def new(data: str) -> int:
    """The checksum of a text: FNV-1a (32 bits) of what Go's debug printer makes of a string."""
    state = _FNV_OFFSET
    for byte in f"(string){data}".encode():
        state = (state ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return state


def verify(checksum: int, data: str) -> None:
    """Raises CorruptCheckpointError unless the checksum is that of the data."""
    actual = new(data)
    if actual != checksum:
        raise CorruptCheckpointError(actual, checksum)
