"""Run operations on volumes in the background, never two conflicting ones on the same volume.

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
    OperationExecutor,
    VolumeLogger,
    VolumeMountState,
    VolumeToAttach,
    VolumeToMount,
)
from pkg.volume.util.operationexecutor.operation_generator import (
    VERIFY_CONTROLLER_ATTACHED_VOLUME_OP_NAME,
    OperationGenerator,
)
from pkg.volume.util.operationexecutor.stuck_unmounts import StuckUnmounts

__all__ = [
    "VERIFY_CONTROLLER_ATTACHED_VOLUME_OP_NAME",
    "ActualStateOfWorldAttacherUpdater",
    "ActualStateOfWorldMounterUpdater",
    "AttachedVolume",
    "DeviceMountState",
    "MarkVolumeOpts",
    "MountPreConditionFailed",
    "MountedVolume",
    "OperationExecutor",
    "OperationGenerator",
    "StuckUnmounts",
    "VolumeLogger",
    "VolumeMountState",
    "VolumeToAttach",
    "VolumeToMount",
]
