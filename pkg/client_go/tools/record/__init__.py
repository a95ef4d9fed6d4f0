"""Record events, which tell users what happened to an object.

Go: k8s.io/client-go/tools/record
"""

from pkg.client_go.tools.record.event import (
    EventBroadcaster,
    EventRecorder,
    EventSink,
    EventSinkImpl,
    new_broadcaster,
)
from pkg.client_go.tools.record.standalone import RecordedEvent, StandaloneRecorder

__all__ = [
    "EventBroadcaster",
    "EventRecorder",
    "EventSink",
    "EventSinkImpl",
    "RecordedEvent",
    "StandaloneRecorder",
    "new_broadcaster",
]
