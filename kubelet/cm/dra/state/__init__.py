"""Keep the record of prepared claims and their pods across a restart of the kubelet.

Go: pkg/kubelet/cm/dra/state
"""

from kubelet.cm.dra.state.checkpoint import (
    CHECKPOINT_API_GROUP,
    CHECKPOINT_API_VERSION,
    CHECKPOINT_KIND,
    Checkpoint,
    go_json,
)
from kubelet.cm.dra.state.checkpointer import Checkpointer
from kubelet.cm.dra.state.state import (
    ClaimInfoState,
    Device,
    DeviceHealth,
    DeviceHealthStatus,
    DevicesHealthMap,
    DriverState,
)

__all__ = [
    "CHECKPOINT_API_GROUP",
    "CHECKPOINT_API_VERSION",
    "CHECKPOINT_KIND",
    "Checkpoint",
    "Checkpointer",
    "ClaimInfoState",
    "Device",
    "DeviceHealth",
    "DeviceHealthStatus",
    "DevicesHealthMap",
    "DriverState",
    "go_json",
]
