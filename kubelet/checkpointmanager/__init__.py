"""State that a kubelet finds again after a restart, in files with a checksum.

Go: pkg/kubelet/checkpointmanager
"""

from kubelet.checkpointmanager import checksum, errors
from kubelet.checkpointmanager.checkpoint_manager import Checkpoint, CheckpointManager

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "checksum",
    "errors",
]
