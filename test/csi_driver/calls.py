"""Log calls in a file that survives kills of the driver and the kubelet.

The log has a JSON line at the start and one at the end of each call.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class CallLog:
    """Append to a file. All methods are thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        # The lock guards the order of the lines.
        self._lock = threading.Lock()

    def begin(self, method: str, request: Mapping[str, Any]) -> str:
        """Log the start of a call, and return the call's ID."""
        call = f"{os.getpid()}-{next(self._numbers)}"
        self._write({"event": "begin", "call": call, "method": method, "request": request})
        return call

    def end(self, call: str, code: str, message: str = "") -> None:
        self._write({"event": "end", "call": call, "code": code, "message": message})

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            _append(self._path, line)


def mark(path: Path, what: str) -> None:
    """Log another event than a call, such as a restart of the kubelet."""
    _append(path, {"event": "mark", "what": what})


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps({"time": time.time(), **line}).encode() + b"\n")


@dataclass
class Call:
    """Describe a call.

    `began` and `ended` are the numbers of the call's lines in the log. `code` is empty if the call never ended.

    `marks` is the number of marks before the call.
    """

    method: str
    request: dict[str, Any]
    began: int
    ended: int | None = None
    code: str = ""
    message: str = ""
    marks: int = 0
    time: float = field(default=0.0, compare=False)

    @property
    def volume(self) -> str:
        return str(self.request.get("volume_id", ""))

    @property
    def path(self) -> str:
        """Return the path at which the volume is staged or published."""
        return str(self.request.get("target_path") or self.request.get("staging_target_path", ""))


def read(path: Path) -> list[Call]:
    """Return the calls in the order in which they began, without a line that a kill has cut off."""
    calls: dict[str, Call] = {}
    marks = 0
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    for number, line in enumerate(lines):
        entry = json.loads(line)
        if entry["event"] == "begin":
            call = Call(entry["method"], entry["request"], number, marks=marks, time=entry["time"])
            calls[entry["call"]] = call
        elif entry["event"] == "mark":
            marks += 1
        else:
            call = calls[entry["call"]]
            call.ended, call.code, call.message = number, entry["code"], entry["message"]
    return list(calls.values())
