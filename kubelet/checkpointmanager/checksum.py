"""Compute the checksum of a checkpoint's data as Go does.

Go: pkg/kubelet/checkpointmanager/checksum/checksum.go
"""

from __future__ import annotations

from kubelet.checkpointmanager.errors import CorruptCheckpointError
from pkg.util import hash


def new(data: str) -> int:
    """Return the checksum of a text: the 32-bit FNV-1a hash of what Go's debug printer writes for a string."""
    return hash.fnv32a(f"(string){data}".encode())


def verify(checksum: int, data: str) -> None:
    """Raise CorruptCheckpointError if the checksum does not match the data."""
    actual = new(data)
    if actual != checksum:
        raise CorruptCheckpointError(actual, checksum)
