"""A log of calls that survives the driver and its kubelet being killed: a JSON line as each begins and ends."""

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
    """Appends to a file; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._numbers = itertools.count(1)
        # Guards the order of lines.
        self._lock = threading.Lock()

    def begin(self, method: str, request: Mapping[str, Any]) -> str:
        """Returns what the call is known by."""
        call = f"{os.getpid()}-{next(self._numbers)}"
        self._write({"event": "begin", "call": call, "method": method, "request": request})
        return call

    def end(self, call: str, code: str, message: str = "") -> None:
        self._write({"event": "end", "call": call, "code": code, "message": message})

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._lock:
            _append(self._path, line)


def mark(path: Path, what: str) -> None:
    """Write into the log that something happened beside it: the kubelet was started again."""
    _append(path, {"event": "mark", "what": what})


def _append(path: Path, line: Mapping[str, Any]) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(json.dumps({"time": time.time(), **line}).encode() + b"\n")


@dataclass
class Call:
    """`code` is empty for a call that never ended; `began` and `ended` are its lines' numbers in the log.

    `marks` is how many marks are before it.
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
        """Where the volume is staged or published."""
        return str(self.request.get("target_path") or self.request.get("staging_target_path", ""))


def read(path: Path) -> list[Call]:
    """The calls in the order in which they began. A line that was cut by a kill is left out."""
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
