"""Define the lifecycle events of pods, and the interface of their generators.

Go: pkg/kubelet/pleg/pleg.go
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

from pkg import golang
from pkg.apimachinery import types


@dataclass(slots=True)
class RelistDuration:
    """Hold the relist period, and the time without a relist after which the PLEG is unhealthy, both in seconds."""

    relist_period: float
    relist_threshold: float


class PodLifeCycleEventType(enum.StrEnum):
    """Name the kinds of lifecycle events."""

    CONTAINER_STARTED = "ContainerStarted"
    CONTAINER_DIED = "ContainerDied"
    CONTAINER_REMOVED = "ContainerRemoved"
    POD_SYNC = "PodSync"
    CONTAINER_CHANGED = "ContainerChanged"


CONTAINER_STARTED = PodLifeCycleEventType.CONTAINER_STARTED  # The container is running now.
CONTAINER_DIED = PodLifeCycleEventType.CONTAINER_DIED  # The container has exited.
CONTAINER_REMOVED = PodLifeCycleEventType.CONTAINER_REMOVED  # The container no longer exists.
# The pod changed in a way that no other event describes, so it must be synced.
POD_SYNC = PodLifeCycleEventType.POD_SYNC
CONTAINER_CHANGED = PodLifeCycleEventType.CONTAINER_CHANGED  # The container's state is unknown now.


@dataclass(frozen=True, slots=True)
class PodLifecycleEvent:
    """Describe a change in the pod with the UID `id`; `data` is the ID of the container, or None for POD_SYNC."""

    id: types.UID
    type: PodLifeCycleEventType
    data: str | None = None


class PLEGUnhealthyError(Exception):
    """Signal that the PLEG does not work; the message gives the reason."""


class PodLifecycleEventGenerator(Protocol):
    """Define a generator: it watches the runtime, fills the pod cache and sends events."""

    def start(self, ctx: golang.Context) -> None:
        """Start the generator on separate threads, which end when ctx is done."""
        ...

    def watch(self) -> golang.Channel[PodLifecycleEvent]:
        """Return the channel to which the generator sends its events."""
        ...

    def healthy(self) -> None:
        """Raise PLEGUnhealthyError if the generator does not work."""
        ...

    def request_reinspect(self, pod_uid: types.UID) -> None:
        """Inspect the pod during the next relist even if the pod seems unchanged."""
        ...

    def request_relist(self, pod_uid: types.UID) -> None:
        """Relist this pod soon, without waiting for the next periodic relist."""
        ...


class PodLifecycleEventGeneratorHandler(PodLifecycleEventGenerator, Protocol):
    """Define what one generator needs from another; no other component uses these methods."""

    # `evented_in_use` tells whether the runtime's events also fill the cache.
    evented_in_use: bool

    def stop(self) -> None: ...

    def update(self, relist_duration: RelistDuration) -> None:
        """Change the durations. The generator must be stopped meanwhile."""
        ...

    def relist(self) -> None: ...
