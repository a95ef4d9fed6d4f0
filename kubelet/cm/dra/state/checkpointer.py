"""Read and write the file that keeps claims across a restart.

Go: pkg/kubelet/cm/dra/state/checkpointer.go
"""

from __future__ import annotations

from kubelet import checkpointmanager
from kubelet.checkpointmanager import errors
from kubelet.cm.dra.state.checkpoint import Checkpoint


class Checkpointer:
    """Read and write one checkpoint in a directory. All methods are thread-safe."""

    def __init__(self, state_dir: str, checkpoint_name: str) -> None:
        """Raise OSError if the directory cannot be created, ValueError for an empty name."""
        if not checkpoint_name:
            raise ValueError("received empty string instead of checkpointName")
        self._checkpoint_manager = checkpointmanager.CheckpointManager(state_dir)
        self._checkpoint_name = checkpoint_name

    def get_or_create(self) -> Checkpoint:
        """Return the existing checkpoint, or store an empty one and return it. Raise ValueError or OSError."""
        checkpoint = Checkpoint()
        try:
            self._checkpoint_manager.get_checkpoint(self._checkpoint_name, checkpoint)
        except errors.ErrCheckpointNotFound:
            self.store(checkpoint)
        except ValueError as err:
            raise ValueError(f"failed to get checkpoint {self._checkpoint_name}: {err}") from err
        return checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Write the checkpoint. Raise OSError."""
        self._checkpoint_manager.create_checkpoint(self._checkpoint_name, checkpoint)
