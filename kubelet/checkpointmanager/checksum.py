"""The checksum of a checkpoint's data, the same that Go makes.

Go: pkg/kubelet/checkpointmanager/checksum/checksum.go
"""

from __future__ import annotations

from kubelet.checkpointmanager.errors import CorruptCheckpointError
from pkg.util import hash


def new(data: str) -> int:
    """The checksum of a text: FNV-1a (32 bits) of what Go's debug printer makes of a string."""
    return hash.fnv32a(f"(string){data}".encode())


def verify(checksum: int, data: str) -> None:
    """Raises CorruptCheckpointError unless the checksum is that of the data."""
    actual = new(data)
    if actual != checksum:
        raise CorruptCheckpointError(actual, checksum)
