"""What all recorders share.

Go: none; there each recorder has these methods of its own
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from pkg import golang


class BaseRecorder(abc.ABC):
    """The methods of EventRecorder, all of which come down to one."""

    # Told of each event besides: object, type, reason, message, and what the message was formatted with. Must be quick
    # and not raise; nor may it keep an error that it is given.
    observer: Callable[[Any, str, str, str, tuple[Any, ...]], None] | None = None

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None:
        # The name of a file or a process that the message quotes may be no text, and an event could not be sent then.
        message = golang.to_valid_utf8(message)
        self._observe(obj, event_type, reason, message, ())
        self._generate_event(obj, {}, event_type, reason, message)

    def eventf(self, obj: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any) -> None:
        message = golang.to_valid_utf8(message_fmt % args)
        self._observe(obj, event_type, reason, message, args)
        self._generate_event(obj, {}, event_type, reason, message)

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
        message = golang.to_valid_utf8(message_fmt % args)
        self._observe(obj, event_type, reason, message, args)
        self._generate_event(obj, annotations, event_type, reason, message)

    def _observe(self, obj: Any, event_type: str, reason: str, message: str, args: tuple[Any, ...]) -> None:
        if self.observer is not None:
            self.observer(obj, event_type, reason, message, args)

    @abc.abstractmethod
    def _generate_event(
        self, obj: Any, annotations: Mapping[str, str], event_type: str, reason: str, message: str
    ) -> None:
        """Record an event; the line that does so is two calls up the stack."""
