"""Write and read checkpoints.

Go: pkg/kubelet/checkpointmanager/checkpoint_manager.go
"""

from __future__ import annotations

import os
import threading
from typing import Protocol

from kubelet.checkpointmanager.errors import ErrCheckpointNotFound
from kubelet.util import store
from pkg import klog
from pkg.apimachinery.runtime import codec


class Checkpoint(Protocol):
    """Define state that can be encoded for the disk."""

    def marshal_checkpoint(self) -> bytes: ...

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Parse a checkpoint. Raise ValueError for data of another format."""
        ...

    def verify_checksum(self) -> None:
        """Compare the checksum. Raise CorruptCheckpointError."""
        ...


class CheckpointManager:
    """Manage named checkpoints, each in a file of one directory. All methods are thread-safe."""

    def __init__(self, checkpoint_dir: str) -> None:
        """Create the directory if it does not exist. Raise OSError."""
        self._dir = checkpoint_dir
        self._store: store.Store = store.FileStore(checkpoint_dir)
        self._lock = threading.Lock()  # This lock serializes reads and writes.

    def create_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        """Write a checkpoint. Raise OSError, or ValueError for an invalid key."""
        with self._lock:
            self._store.write(key, checkpoint.marshal_checkpoint())

    def get_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        """Read a checkpoint into `checkpoint`.

        Raise ErrCheckpointNotFound, CorruptCheckpointError, ValueError or OSError.
        """
        with self._lock, codec.reading(f"checkpoint {key}"):
            try:
                blob = self._store.read(key)
            except store.ErrKeyNotFound as err:
                raise ErrCheckpointNotFound from err
            checkpoint.unmarshal_checkpoint(blob)
            checkpoint.verify_checksum()

    def remove_checkpoint(self, key: str) -> None:
        """Remove a checkpoint; a missing one is not an error. Raise OSError."""
        with self._lock:
            self._store.delete(key)

    def set_aside(self, key: str, err: ValueError) -> None:
        """Rename an unusable file and log that, so that the kubelet can continue without it. Raise OSError."""
        path = os.path.join(self._dir, key)
        aside = f"{path}.corrupt"
        klog.error_s(err, "Could not restore state from checkpoint, continuing without it", path=path, movedTo=aside)
        os.replace(path, aside)

    def list_checkpoints(self) -> list[str]:
        """List the names of the checkpoints. Raise OSError."""
        with self._lock:
            return self._store.list()
