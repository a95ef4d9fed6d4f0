"""What is known of claims, of the devices they were given, and of devices' health.

Go: pkg/kubelet/cm/dra/state/state.go
"""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Device:
    """An allocated device as its driver described it. Names of requests, a share and CDI ids need not be there."""

    pool_name: str = ""
    device_name: str = ""
    share_id: str | None = None
    request_names: tuple[str, ...] = ()
    cdi_device_ids: tuple[str, ...] = ()


@dataclass(slots=True)
class DriverState:
    """What a driver has prepared for a claim."""

    devices: list[Device] = field(default_factory=list)


@dataclass(slots=True)
class ClaimInfoState:
    """A claim that some pod has, or was about to have, prepared on this node."""

    claim_uid: str = ""
    claim_name: str = ""
    namespace: str = ""
    # The pods that refer to it.
    pod_uids: set[str] = field(default_factory=set)
    # By name, all drivers that the claim was allocated devices of, whether they describe any or not.
    driver_state: dict[str, DriverState] = field(default_factory=dict)


class DeviceHealthStatus(enum.StrEnum):
    """How a device is."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """What a driver told of a device, and when."""

    pool_name: str
    device_name: str
    health: DeviceHealthStatus = DeviceHealthStatus.UNKNOWN
    last_updated: datetime.datetime | None = None  # by the steady clock
    # Seconds for which that holds; 0 stands for the default.
    health_check_timeout: float = 0.0
    message: str = ""


# By driver, and then by "<pool>/<device>".
DevicesHealthMap = dict[str, dict[str, DeviceHealth]]
