"""What can be wrong with a checkpoint.

Go: pkg/kubelet/checkpointmanager/errors/errors.go
"""

from __future__ import annotations


class ErrCheckpointNotFound(LookupError):
    """There is no checkpoint of that name."""

    def __init__(self) -> None:
        super().__init__("checkpoint is not found")


class CorruptCheckpointError(ValueError):
    """The data is not that of which the checksum was made."""

    def __init__(self, actual: int, expected: int) -> None:
        super().__init__("checkpoint is corrupted")
        self.actual = actual
        self.expected = expected
