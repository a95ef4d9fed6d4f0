"""Who records events.

Go: k8s.io/client-go/tools/record/event.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class EventRecorder(Protocol):
    """Recording never blocks for long and never fails; safe from any thread.

    The object is an API object or a v1.ObjectReference to one; the type is Normal or Warning, the reason a
    short CamelCase word for machines, the message a sentence for people.
    """

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None: ...

    def eventf(self, obj: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any) -> None:
        """As event, with a message in %-format."""
        ...

    def annotated_eventf(
        self,
        obj: Any,
        annotations: Mapping[str, str],
        event_type: str,
        reason: str,
        message_fmt: str,
        /,
        *args: Any,
    ) -> None:
        """As eventf, with annotations on the event."""
        ...
