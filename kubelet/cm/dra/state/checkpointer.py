"""Where claims are kept on disk.

Go: pkg/kubelet/cm/dra/state/checkpointer.go
"""

from __future__ import annotations

from kubelet import checkpointmanager
from kubelet.checkpointmanager import errors
from kubelet.cm.dra.state.checkpoint import Checkpoint


class Checkpointer:
    """One checkpoint in a directory. Thread-safe."""

    def __init__(self, state_dir: str, checkpoint_name: str) -> None:
        """Raises OSError when the directory cannot be made, ValueError for a checkpoint without a name."""
        if not checkpoint_name:
            raise ValueError("received empty string instead of checkpointName")
        self._checkpoint_manager = checkpointmanager.CheckpointManager(state_dir)
        self._checkpoint_name = checkpoint_name

    def get_or_create(self) -> Checkpoint:
        """What is there, or an empty one that is there from now on. Raises ValueError, OSError."""
        checkpoint = Checkpoint()
        try:
            self._checkpoint_manager.get_checkpoint(self._checkpoint_name, checkpoint)
        except errors.ErrCheckpointNotFound:
            self.store(checkpoint)
        except ValueError as err:
            raise ValueError(f"failed to get checkpoint {self._checkpoint_name}: {err}") from err
        return checkpoint

    def store(self, checkpoint: Checkpoint) -> None:
        """Raises OSError."""
        self._checkpoint_manager.create_checkpoint(self._checkpoint_name, checkpoint)
