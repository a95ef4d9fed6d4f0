"""Mount the volumes that pods need, and unmount the volumes that no pod needs any more.

The populator fills the desired state from the pods. Operations fill the actual state; after a restart the reconciler
reconstructs it from the disk. The reconciler compares the two and starts the operations that turn the actual state into
the desired one.

Go: pkg/kubelet/volumemanager
"""

from kubelet.volumemanager.volume_manager import (
    VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON,
    VolumeAttachLimitExceededError,
    VolumeManager,
    VolumesNotReadyError,
)

__all__ = [
    "VOLUME_ATTACHMENT_LIMIT_EXCEEDED_REASON",
    "VolumeAttachLimitExceededError",
    "VolumeManager",
    "VolumesNotReadyError",
]
