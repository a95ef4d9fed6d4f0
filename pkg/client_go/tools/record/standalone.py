"""Log the events of a kubelet without an API server, and keep the latest ones.

Go: none; the log line is that of StartStructuredLogging in k8s.io/client-go/tools/record/event.go
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pkg import klog
from pkg.api.core import v1
from pkg.apimachinery import clock as clock_
from pkg.client_go.tools import reference
from pkg.client_go.tools.record import recorder


@dataclass(slots=True, frozen=True)
class RecordedEvent:
    """Describe one event about `involved_object`."""

    time: datetime
    involved_object: v1.ObjectReference
    type: str
    reason: str
    message: str
    annotations: Mapping[str, str]


class StandaloneRecorder(recorder.BaseRecorder):
    """Implement EventRecorder, and keep the latest `keep` events."""

    def __init__(self, keep: int = 1000, clock: clock_.Clock | None = None) -> None:
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # The lock guards _events.
        self._events: deque[RecordedEvent] = deque(maxlen=keep)

    def events(self) -> list[RecordedEvent]:
        """Return the kept events, the oldest first."""
        with self._lock:
            return list(self._events)

    def _generate_event(
        self, obj: Any, annotations: Mapping[str, str], event_type: str, reason: str, message: str
    ) -> None:
        ref = reference.get_reference(obj)
        event = RecordedEvent(self._clock.now(), ref, event_type, reason, message, dict(annotations))
        with self._lock:
            self._events.append(event)
        klog.info_s_depth(
            2,
            "Event occurred",
            object=klog.kref(ref.namespace, ref.name),
            fieldPath=ref.field_path,
            kind=ref.kind,
            apiVersion=ref.api_version,
            type=event_type,
            reason=reason,
            message=message,
        )
