"""Mounting and unmounting in the background, one operation at a time per volume of a pod.

Go: pkg/volume/util/operationexecutor
"""

from pkg.volume.util.operationexecutor.operation_executor import (
    ActualStateOfWorldMounterUpdater,
    MountedVolume,
    OperationExecutor,
    VolumeToMount,
)

__all__ = ["ActualStateOfWorldMounterUpdater", "MountedVolume", "OperationExecutor", "VolumeToMount"]
