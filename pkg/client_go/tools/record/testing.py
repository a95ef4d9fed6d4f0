"""Provide a recorder for tests.

Go: k8s.io/client-go/tools/record/fake.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pkg import golang
from pkg.client_go.tools.record import recorder


class FakeRecorder(recorder.BaseRecorder):
    """Put `type reason message` on the channel `events`, which holds `buffer_size` of them.

    An event that does not fit raises AssertionError, where Go's fake blocks forever.
    """

    def __init__(self, buffer_size: int) -> None:
        self.events: golang.Channel[str] = golang.Channel(buffer_size)

    def drain(self) -> list[str]:
        """Remove and return all events so far."""
        return [self.events.recv()[0] or "" for _ in range(len(self.events))]

    def _generate_event(
        self, obj: Any, annotations: Mapping[str, str], event_type: str, reason: str, message: str
    ) -> None:
        shown = " ".join(f"{key}:{annotations[key]}" for key in sorted(annotations))
        text = f"{event_type} {reason} {message}" + (f" map[{shown}]" if shown else "")
        if not self.events.try_send(text):
            raise AssertionError(f"no room for another event: {text}")
