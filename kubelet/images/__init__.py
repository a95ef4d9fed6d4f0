"""Pull images when pods need them, and remove them when they are old or the disk is full.

Go: pkg/kubelet/images
"""

from kubelet.images.image_gc_manager import (
    ImageGCManager,
    ImageGCPolicy,
    PostImageGCHook,
    StatsProvider,
)
from kubelet.images.image_manager import ExternalCredentials, ImageManager, ImagePodPullingTimeRecorder
from kubelet.images.types import (
    ErrImageInspect,
    ErrImageNeverPull,
    ErrImagePull,
    ErrImagePullBackOff,
    ErrInvalidImageName,
    ErrRegistryUnavailable,
    ErrSignatureValidationFailed,
    ImageError,
)

__all__ = [
    "ErrImageInspect",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ErrImagePullBackOff",
    "ErrInvalidImageName",
    "ErrRegistryUnavailable",
    "ErrSignatureValidationFailed",
    "ExternalCredentials",
    "ImageError",
    "ImageGCManager",
    "ImageGCPolicy",
    "ImageManager",
    "ImagePodPullingTimeRecorder",
    "PostImageGCHook",
    "StatsProvider",
]
