"""Writing and reading checkpoints.

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
    """State that knows its form on disk."""

    def marshal_checkpoint(self) -> bytes: ...

    def unmarshal_checkpoint(self, blob: bytes) -> None:
        """Raises ValueError for what has not the form of this checkpoint."""
        ...

    def verify_checksum(self) -> None:
        """Raises CorruptCheckpointError."""
        ...


class CheckpointManager:
    """Checkpoints by name, each in a file of one directory. Thread-safe."""

    def __init__(self, checkpoint_dir: str) -> None:
        """Makes the directory if it is not there. Raises OSError."""
        self._dir = checkpoint_dir
        self._store: store.Store = store.FileStore(checkpoint_dir)
        self._lock = threading.Lock()  # one reads or writes at a time

    def create_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        """Raises OSError, ValueError for a bad key."""
        with self._lock:
            self._store.write(key, checkpoint.marshal_checkpoint())

    def get_checkpoint(self, key: str, checkpoint: Checkpoint) -> None:
        """Fills in the checkpoint. Raises ErrCheckpointNotFound, CorruptCheckpointError, ValueError, OSError."""
        with self._lock, codec.reading(f"checkpoint {key}"):
            try:
                blob = self._store.read(key)
            except store.ErrKeyNotFound as err:
                raise ErrCheckpointNotFound from err
            checkpoint.unmarshal_checkpoint(blob)
            checkpoint.verify_checksum()

    def remove_checkpoint(self, key: str) -> None:
        """One that is not there is no error. Raises OSError."""
        with self._lock:
            self._store.delete(key)

    def set_aside(self, key: str, err: ValueError) -> None:
        """Give the file that cannot be used another name, and say so, to go on without. Raises OSError."""
        path = os.path.join(self._dir, key)
        aside = f"{path}.corrupt"
        klog.error_s(err, "Could not restore state from checkpoint, going on without", path=path, movedTo=aside)
        os.replace(path, aside)

    def list_checkpoints(self) -> list[str]:
        """The names. Raises OSError."""
        with self._lock:
            return self._store.list()
