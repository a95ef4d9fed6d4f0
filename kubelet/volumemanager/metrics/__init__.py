"""Count volumes and the results of reconstruction.

Go: pkg/kubelet/volumemanager/metrics
"""

from kubelet.volumemanager.metrics.metrics import (
    FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_ERRORS_TOTAL,
    FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL,
    RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL,
    RECONSTRUCT_VOLUME_OPERATIONS_TOTAL,
    TotalVolumesCollector,
    register,
)

__all__ = [
    "FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_ERRORS_TOTAL",
    "FORCE_CLEANED_FAILED_VOLUME_OPERATIONS_TOTAL",
    "RECONSTRUCT_VOLUME_OPERATIONS_ERRORS_TOTAL",
    "RECONSTRUCT_VOLUME_OPERATIONS_TOTAL",
    "TotalVolumesCollector",
    "register",
]
