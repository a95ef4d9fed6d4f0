"""Sees that each pod has the volumes it wants, and that nothing keeps one that nobody wants.

What is wanted (desired state) is filled from the pods by the populator, what there is (actual state) is filled by
operations and, after a restart, from the disk; the reconciler starts the operations that make one the other.

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
