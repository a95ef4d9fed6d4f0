"""Record the fake runtime's calls in the format of the recorded conversations."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import json_format


@dataclass(frozen=True, slots=True)
class Call:
    """Record a call and its response or error."""

    start: float  # The time is in seconds from the start of the recording.
    duration: float  # seconds
    method: str
    request: Any
    response: Any
    error: str

    def as_json(self) -> dict[str, Any]:
        line = {
            "t": round(self.start, 3),
            "ms": round(self.duration * 1000, 1),
            "method": self.method,
            "request": _to_dict(self.request),
        }
        if self.error:
            line["error"] = self.error
        else:
            line["response"] = _to_dict(self.response)
        return line


class Recorder:
    """Record calls in the order of their completion while `on` is set. All methods are thread-safe."""

    def __init__(self) -> None:
        self.on = False
        self._lock = threading.Lock()  # The lock guards _calls and counts.
        self._calls: list[Call] = []
        self.counts: dict[str, int] = {}

    def count(self, method: str) -> None:
        with self._lock:
            self.counts[method] = self.counts.get(method, 0) + 1

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def calls(self, methods: Iterable[str] = ()) -> list[Call]:
        """Return the recorded calls of these methods, or of all."""
        wanted = set(methods)
        with self._lock:
            return [call for call in self._calls if not wanted or call.method in wanted]

    def clear(self) -> None:
        with self._lock:
            self._calls.clear()
            self.counts.clear()

    def write(self, path: Path) -> None:
        """Write one line of JSON for each call."""
        path.write_text("".join(json.dumps(call.as_json()) + "\n" for call in self.calls()))


def _to_dict(message: Any) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)
