"""Define the errors of checkpoints.

Go: pkg/kubelet/checkpointmanager/errors/errors.go
"""

from __future__ import annotations


class ErrCheckpointNotFound(LookupError):
    """Signal that no checkpoint has this name."""

    def __init__(self) -> None:
        super().__init__("checkpoint is not found")


class CorruptCheckpointError(ValueError):
    """Signal that the checksum does not match the data."""

    def __init__(self, actual: int, expected: int) -> None:
        super().__init__("checkpoint is corrupted")
        self.actual = actual
        self.expected = expected
