"""Provide what all recorders share.

Go: none; each recorder of Go has its own copy of these methods
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from pkg import golang


class BaseRecorder(abc.ABC):
    """Implement the methods of EventRecorder on top of one abstract method."""

    # Each event is also passed to this function: object, type, reason, message, and the arguments of the message's
    # format. The function must be quick and must not raise an exception. It must not keep an error among the arguments.
    observer: Callable[[Any, str, str, str, tuple[Any, ...]], None] | None = None

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None:
        # The message may quote a file or process name that is not valid UTF-8, and such an event could not be sent.
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
        """Record an event; the log names the line two calls up the stack."""
