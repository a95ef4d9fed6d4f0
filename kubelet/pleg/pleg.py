"""The events of pods' lives, and what generates them.

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
    """Seconds from one relist to the next, and without a relist until the PLEG counts as unhealthy."""

    relist_period: float
    relist_threshold: float


class PodLifeCycleEventType(enum.StrEnum):
    """What happened."""

    CONTAINER_STARTED = "ContainerStarted"
    CONTAINER_DIED = "ContainerDied"
    CONTAINER_REMOVED = "ContainerRemoved"
    POD_SYNC = "PodSync"
    CONTAINER_CHANGED = "ContainerChanged"


CONTAINER_STARTED = PodLifeCycleEventType.CONTAINER_STARTED  # it runs now
CONTAINER_DIED = PodLifeCycleEventType.CONTAINER_DIED  # it has exited
CONTAINER_REMOVED = PodLifeCycleEventType.CONTAINER_REMOVED  # it is not there any more
POD_SYNC = PodLifeCycleEventType.POD_SYNC  # none of the others says it; look at the pod
CONTAINER_CHANGED = PodLifeCycleEventType.CONTAINER_CHANGED  # its state is unknown now


@dataclass(frozen=True, slots=True)
class PodLifecycleEvent:
    """Something that happened to the pod with the uid `id`; `data` is the container, None with POD_SYNC."""

    id: types.UID
    type: PodLifeCycleEventType
    data: str | None = None


class PLEGUnhealthyError(Exception):
    """Why the PLEG does not do its work."""


class PodLifecycleEventGenerator(Protocol):
    """Watches the runtime, fills the pod cache and sends events."""

    def start(self, ctx: golang.Context) -> None:
        """Begin, on threads of its own that end when ctx is done."""
        ...

    def watch(self) -> golang.Channel[PodLifecycleEvent]:
        """The channel that the events are sent to."""
        ...

    def healthy(self) -> None:
        """Raises PLEGUnhealthyError if it does not do its work."""
        ...

    def request_reinspect(self, pod_uid: types.UID) -> None:
        """Inspect the pod in the next relist even if it seems unchanged."""
        ...

    def request_relist(self, pod_uid: types.UID) -> None:
        """Relist the pod soon, out of turn."""
        ...


class PodLifecycleEventGeneratorHandler(PodLifecycleEventGenerator, Protocol):
    """What one generator needs of another, and nobody else."""

    # Whether the runtime's events fill the cache as well.
    evented_in_use: bool

    def stop(self) -> None: ...

    def update(self, relist_duration: RelistDuration) -> None:
        """Change the durations; only while stopped."""
        ...

    def relist(self) -> None: ...
