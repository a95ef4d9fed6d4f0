"""Hold the desired and the actual state of volumes.

Go: pkg/kubelet/volumemanager/cache
"""

from kubelet.volumemanager.cache.actual_state_of_world import (
    ActualStateOfWorld,
    AttachedVolume,
    FsResizeRequiredError,
    PodInVolume,
    RemountRequiredError,
    SELinuxMountMismatchError,
    VolumeNotAttachedError,
)
from kubelet.volumemanager.cache.desired_state_of_world import DesiredStateOfWorld

__all__ = [
    "ActualStateOfWorld",
    "AttachedVolume",
    "DesiredStateOfWorld",
    "FsResizeRequiredError",
    "PodInVolume",
    "RemountRequiredError",
    "SELinuxMountMismatchError",
    "VolumeNotAttachedError",
]
