"""Operations on volumes in the background, no two at a time on one volume.

Go: pkg/volume/util/operationexecutor
"""

from pkg.volume.util.operationexecutor.operation_executor import (
    ActualStateOfWorldAttacherUpdater,
    ActualStateOfWorldMounterUpdater,
    AttachedVolume,
    DeviceMountState,
    MarkVolumeOpts,
    MountedVolume,
    MountPreConditionFailed,
    VolumeLogger,
    VolumeMountState,
    VolumeToAttach,
    VolumeToMount,
)

__all__ = [
    "ActualStateOfWorldAttacherUpdater",
    "ActualStateOfWorldMounterUpdater",
    "AttachedVolume",
    "DeviceMountState",
    "MarkVolumeOpts",
    "MountPreConditionFailed",
    "MountedVolume",
    "VolumeLogger",
    "VolumeMountState",
    "VolumeToAttach",
    "VolumeToMount",
]
