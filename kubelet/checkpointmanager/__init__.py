"""Keep state across a restart of the kubelet, in files with a checksum.

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
