"""Run the pod lifecycle event generator (PLEG), which sends events about containers to the main loop.

Go: pkg/kubelet/pleg
"""

from kubelet.pleg.evented import (
    GLOBAL_CACHE_UPDATE_PERIOD,
    EventedPLEG,
    get_pod_sandbox_state,
)
from kubelet.pleg.generic import (
    GenericPLEG,
    PLEGContainerState,
    PodRecords,
    compute_events,
    generate_events,
    get_pod_ips,
)
from kubelet.pleg.pleg import (
    CONTAINER_CHANGED,
    CONTAINER_DIED,
    CONTAINER_REMOVED,
    CONTAINER_STARTED,
    POD_SYNC,
    PLEGUnhealthyError,
    PodLifecycleEvent,
    PodLifecycleEventGenerator,
    PodLifecycleEventGeneratorHandler,
    PodLifeCycleEventType,
    RelistDuration,
)

__all__ = [
    "CONTAINER_CHANGED",
    "CONTAINER_DIED",
    "CONTAINER_REMOVED",
    "CONTAINER_STARTED",
    "GLOBAL_CACHE_UPDATE_PERIOD",
    "POD_SYNC",
    "EventedPLEG",
    "GenericPLEG",
    "PLEGContainerState",
    "PLEGUnhealthyError",
    "PodLifeCycleEventType",
    "PodLifecycleEvent",
    "PodLifecycleEventGenerator",
    "PodLifecycleEventGeneratorHandler",
    "PodRecords",
    "RelistDuration",
    "compute_events",
    "generate_events",
    "get_pod_ips",
    "get_pod_sandbox_state",
]
