"""A recorder for tests.

Go: k8s.io/client-go/tools/record/fake.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pkg import golang


class FakeRecorder:
    """Puts `type reason message` on `.events`, which holds `buffer_size` of them.

    DIVERGES: one event too many raises, where Go's fake blocks for ever.
    """

    def __init__(self, buffer_size: int) -> None:
        self.events: golang.Channel[str] = golang.Channel(buffer_size)

    def event(self, obj: Any, event_type: str, reason: str, message: str, /) -> None:
        self._write(f"{event_type} {reason} {message}")

    def eventf(self, obj: Any, event_type: str, reason: str, message_fmt: str, /, *args: Any) -> None:
        self._write(f"{event_type} {reason} {message_fmt % args}")

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
        shown = " ".join(f"{key}:{annotations[key]}" for key in sorted(annotations))
        self._write(f"{event_type} {reason} {message_fmt % args}" + (f" map[{shown}]" if shown else ""))

    def drain(self) -> list[str]:
        """Take out all events so far."""
        return [self.events.recv()[0] or "" for _ in range(len(self.events))]

    def _write(self, text: str) -> None:
        if not self.events.try_send(text):
            raise AssertionError(f"no room for another event: {text}")
