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
    """Describe a threshold together with the quantity that is left."""

    threshold: evictionapi.Threshold
    # `quantity` must be left, and after the threshold was met `reclaim_quantity` must be left again. Both are None
    # without an observation.
    quantity: Quantity | None
    reclaim_quantity: Quantity | None
    # `met` is true if the threshold is met. The manager acts on it now or after its grace period.
    met: bool
    # `since` is when the threshold began to be met without interruption, as of the manager's last check.
    since: datetime.datetime | None


@dataclass(frozen=True, slots=True)
class SignalPreview:
    """Describe a signal that has thresholds."""

    signal: evictionapi.Signal
    # The signal measures this resource, and the node condition reports a shortage of it.
    resource: str
    condition: str
    # The observation is None when the signal cannot be measured.
    observation: SignalObservation | None
    thresholds: list[ThresholdState]
    # The manager removes these kinds of garbage, in this order, before it evicts a pod.
    reclaims: list[str]
    # The ranking contains all active pods in the order of eviction, including those that are spared.
    ranking: list[RankedPod]

    @property
    def victim(self) -> RankedPod | None:
        """Return the pod that would be evicted first, or None if all are spared."""
        return next((ranked for ranked in self.ranking if not ranked.spared), None)


@dataclass(frozen=True, slots=True)
class BrokenLimit:
    """Describe a pod that uses more local storage than it may."""

    pod: v1.Pod
    # This is the name of the limit in the eviction metric.
    signal: str
    message: str
    spared: bool


@dataclass(frozen=True, slots=True)
class Preview:
    """Hold everything that determines evictions."""

    # This field holds the time when each condition was last observed, for current and past conditions.
    conditions_last_observed: dict[str, datetime.datetime]
    # These are the node's current conditions.
    conditions: list[str]
    # A condition stays for this time, in seconds, after it was last observed.
    pressure_transition_period: float
    # The signals are in the order in which the manager acts on them.
    signals: list[SignalPreview]
    broken_limits: list[BrokenLimit]
