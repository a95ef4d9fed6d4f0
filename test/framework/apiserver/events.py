"""Convert events between the core group's form, which is the stored one, and that of events.k8s.io.

Go: k8s.io/kubernetes/pkg/apis/events/v1/conversion.go
"""

from __future__ import annotations

from .interfaces import Object

_NAMES = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_BACK = {new: old for old, new in _NAMES.items()}


def to_events_v1(event: Object) -> Object:
    renamed = {_NAMES.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "events.k8s.io/v1"}


def from_events_v1(event: Object) -> Object:
    renamed = {_BACK.get(key, key): value for key, value in event.items()}
    return {**renamed, "apiVersion": "v1"} if "apiVersion" in event else renamed
