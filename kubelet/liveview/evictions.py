"""Explain which pods would be evicted now, and why.

Go: none

The eviction manager's `preview` returns the facts, and this module turns them into sentences. Times are seconds since
the epoch. Quantities have the API's format, except in `left`, `less_than`, `until` and `why`, which are meant for
people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from kubelet import eviction
from pkg.api.core import v1
from pkg.apimachinery.api.resource import Format, Quantity

# An Object is a JSON object.
Object = dict[str, Any]

FINE = "No resource is short on this node, and no pod would be evicted."
NO_THRESHOLDS = "This node has no eviction thresholds, so a shortage of resources evicts no pod."


def explain(preview: eviction.Preview, now: datetime) -> Object:
    """Return the whole preview as an object for programs, with a sentence for people."""
    return {
        "now": now.timestamp(),
        "sentence": _sentence(preview, now),
        "conditions": list(_conditions(preview)),
        "broken_limits": [
            {"pod": _name(each.pod), "signal": each.signal, "message": each.message.strip(), "spared": each.spared}
            for each in preview.broken_limits
        ],
        "signals": [_signal(each, now) for each in preview.signals],
    }


def _name(pod: v1.Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _sentence(preview: eviction.Preview, now: datetime) -> str:
    """Return a sentence about the next eviction.

    Pods over their own disk limits come before pods that the node evicts because a resource is short: the eviction
    manager works in this order.
    """
    going = [each for each in preview.broken_limits if not each.spared]
    if going:
        whose = "its disk limit" if len(going) == 1 else "their disk limits"
        return f"{_names([_name(each.pod) for each in going])} would be evicted now for exceeding {whose}."
    acting = next((each for each in preview.signals if _state(each, now) == "met"), None)
    if acting is not None:
        return f"The node is short of {_short_of(acting)}: {_what_is_done(acting)}."
    waiting = next((each for each in preview.signals if _state(each, now) == "in grace"), None)
    if waiting is not None:
        return f"The node is short of {_short_of(waiting)}, but the grace period of the threshold has not passed yet."
    return FINE if preview.signals else NO_THRESHOLDS


def _short_of(signal: eviction.SignalPreview) -> str:
    return f"{signal.resource} ({signal.signal})"


def _what_is_done(signal: eviction.SignalPreview) -> str:
    victim = signal.victim
    if not signal.ranking:
        who = "no pod is running that could be evicted"
    elif victim is None:
        who = "no pod would be evicted, because all running pods are critical"
    else:
        who = f"{_name(victim.pod)} would be evicted now"
    if not signal.reclaims:
        return who
    return f"{' and '.join(signal.reclaims)} are removed first, and if that is not enough, {who}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _conditions(preview: eviction.Preview) -> Iterator[Object]:
    for kind in preview.conditions:
        last = preview.conditions_last_observed.get(kind)
        until = None if last is None else last.timestamp() + preview.pressure_transition_period
        yield {"type": kind, "not_before": until}


def _state(signal: eviction.SignalPreview, now: datetime) -> str:
    """Return the signal's state: "unknown", "fine", "in grace" or "met".

    "In grace" means that less is left than a soft threshold demands, but its grace period has not passed.
    """
    if signal.observation is None:
        return "unknown"
    met = [each for each in signal.thresholds if each.met]
    if not met:
        return "fine"
    return "met" if any(_acts_at(each, now) <= now.timestamp() for each in met) else "in grace"


def _acts_at(state: eviction.ThresholdState, now: datetime) -> float:
    """Return when the manager acts on a threshold that is met, if it stays met.

    The grace period of a threshold that the manager has not yet observed begins now.
    """
    return (state.since or now).timestamp() + state.threshold.grace_period


def _signal(signal: eviction.SignalPreview, now: datetime) -> Object:
    observed = signal.observation
    return {
        "signal": str(signal.signal),
        "resource": signal.resource,
        "condition": signal.condition,
        "state": _state(signal, now),
        "available": None if observed is None else str(observed.available),
        "capacity": None if observed is None else str(observed.capacity),
        "left": "" if observed is None else _left(observed.available, observed.capacity),
        "thresholds": [_threshold(each, now) for each in signal.thresholds],
        "reclaims": signal.reclaims,
        "goes_first": None if signal.victim is None else _name(signal.victim.pod),
        "ranking": [_ranked(each) for each in signal.ranking],
    }


def _threshold(state: eviction.ThresholdState, now: datetime) -> Object:
    met = state.met
    return {
        "quantity": None if state.quantity is None else str(state.quantity),
        "less_than": "" if state.quantity is None else readable(state.quantity),
        "reclaim_until": None if state.reclaim_quantity is None else str(state.reclaim_quantity),
        "until": "" if state.reclaim_quantity is None else readable(state.reclaim_quantity),
        "grace_period": state.threshold.grace_period,
        "met": met,
        "since": state.since.timestamp() if met and state.since is not None else None,
        "acts_at": _acts_at(state, now) if met else None,
    }


def _ranked(ranked: eviction.RankedPod) -> Object:
    return {
        "pod": _name(ranked.pod),
        "why": ranked.describe(readable),
        "priority": ranked.priority,
        "usage": None if ranked.usage is None else str(ranked.usage),
        "request": None if ranked.request is None else str(ranked.request),
        "exceeds_request": ranked.exceeds_request,
        "spared": ranked.spared,
    }


def readable(quantity: Quantity) -> str:
    """Return a quantity for people: bytes in the largest suitable unit, with at most three digits."""
    if quantity.format is not Format.BINARY_SI:
        return str(quantity)
    value = float(quantity.value())
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        if abs(value) < 1000 or unit == "Ei":
            break
        value /= 1024
    return f"{value:.1f}".removesuffix(".0") + unit if abs(value) < 100 else f"{value:.0f}{unit}"


def _left(available: Quantity, capacity: Quantity) -> str:
    share = f" ({available.value() / capacity.value():.0%})" if capacity.sign() > 0 else ""
    return f"{readable(available)} of {readable(capacity)}{share}"
