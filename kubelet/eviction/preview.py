"""Who would be evicted now, and why: for the live view.

Go: none
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from kubelet.eviction import api as evictionapi
from kubelet.eviction.types import RankedPod, SignalObservation
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Quantity


@dataclass(frozen=True, slots=True)
class ThresholdState:
    """A threshold beside what there is."""

    threshold: evictionapi.Threshold
    # What must be left, and what must be left again once less was; None without an observation.
    quantity: Quantity | None
    reclaim_quantity: Quantity | None
    # Whether something is, or would after the grace period be, done about it.
    met: bool
    # Since when it is met without a break, as the manager has last seen.
    since: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class SignalPreview:
    """A signal that there are thresholds for."""

    signal: evictionapi.Signal
    # What the node then is short of, and the condition that says so.
    resource: str
    condition: str
    # None when it cannot be measured.
    observation: SignalObservation | None
    thresholds: list[ThresholdState]
    # What is removed before a pod is evicted, in this order.
    reclaims: list[str]
    # All active pods, the first to go first; those that are spared among them.
    ranking: list[RankedPod]

    @property
    def victim(self) -> RankedPod | None:
        """Who goes if that has to be; None if all are spared."""
        return next((ranked for ranked in self.ranking if not ranked.spared), None)


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """A pod that takes more of the node's disk than it may."""

    pod: v1.Pod
    # As the metric of evictions calls it.
    signal: str
    message: str
    spared: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """All that decides about evictions."""

    # When each condition was last observed, of those that still hold or have held.
    conditions_last_observed: dict[str, datetime.datetime]
    # Those that the node has now.
    conditions: list[str]
    # Seconds for which one stays after that.
    pressure_transition_period: float
    # In the order in which they are dealt with.
    signals: list[SignalPreview]
    broken_limits: list[BrokenLimit]
