"""Describe for the live view which pods would be evicted now, and why.

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
    """Describe a threshold together with what is left."""

    threshold: evictionapi.Threshold
    # The quantity that must be left, and the quantity that must be left again after the threshold was met. Both are
    # None without an observation.
    quantity: Quantity | None
    reclaim_quantity: Quantity | None
    # True if the threshold is met. The manager acts on it now or after its grace period.
    met: bool
    # The time since when the threshold has been met continuously, as of the manager's last check.
    since: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class SignalPreview:
    """Describe a signal that has thresholds."""

    signal: evictionapi.Signal
    # The resource that the signal measures, and the node condition that reports a shortage.
    resource: str
    condition: str
    # The observation is None when the signal cannot be measured.
    observation: SignalObservation | None
    thresholds: list[ThresholdState]
    # What the manager removes before it evicts a pod, in this order.
    reclaims: list[str]
    # All active pods, including those that are spared, in the order of eviction.
    ranking: list[RankedPod]

    @property
    def victim(self) -> RankedPod | None:
        """Return the pod that would be evicted first, or None if all are spared."""
        return next((ranked for ranked in self.ranking if not ranked.spared), None)


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """Describe a pod that uses more local storage than it may."""

    pod: v1.Pod
    # The name of the limit in the eviction metric.
    signal: str
    message: str
    spared: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Hold everything that determines evictions."""

    # The time when each condition was last observed, for current and past conditions.
    conditions_last_observed: dict[str, datetime.datetime]
    # The node's current conditions.
    conditions: list[str]
    # A condition stays for this time, in seconds, after it was last observed.
    pressure_transition_period: float
    # The signals in the order in which the manager acts on them.
    signals: list[SignalPreview]
    broken_limits: list[BrokenLimit]
