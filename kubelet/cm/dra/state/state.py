"""Define the records of claims, of their devices, and of the devices' health.

Go: pkg/kubelet/cm/dra/state/state.go
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """Describe an allocated device as its driver reported it. Request names, share ID and CDI IDs are optional."""

    pool_name: str = ""
    device_name: str = ""
    share_id: str | None = None
    request_names: tuple[str, ...] = ()
    cdi_device_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class DriverState:
    """Record what a driver has prepared for a claim."""

    devices: list[Device] = field(default_factory=list)


@dataclass(slots=True)
class ClaimInfoState:
    """Record a claim that is prepared, or was about to be prepared, for a pod on this node."""

    claim_uid: str = ""
    claim_name: str = ""
    namespace: str = ""
    # `pod_uids` holds the UIDs of the pods that use the claim.
    pod_uids: set[str] = field(default_factory=set)
    # The keys are the names of all drivers whose devices the claim was allocated, even if a driver reported no device.
    driver_state: dict[str, DriverState] = field(default_factory=dict)


class DeviceHealthStatus(enum.StrEnum):
    """Name the health of a device."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """Record what a driver last reported about a device."""

    pool_name: str
    device_name: str
    health: DeviceHealthStatus = DeviceHealthStatus.UNKNOWN
    last_updated: datetime.datetime | None = None  # This is a reading of `Clock.steady`.
    # `health_check_timeout` is the time, in seconds, for which the report is valid; 0 stands for the default.
    health_check_timeout: float = 0.0
    message: str = ""


# The keys are a driver's name, and then "<pool>/<device>".
DevicesHealthMap = dict[str, dict[str, DeviceHealth]]
