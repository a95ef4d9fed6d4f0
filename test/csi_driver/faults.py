"""Calls that fail, wait or kill the driver. A directory of files says so, which outlives the driver.

`METHOD.json` is what the next calls of a method meet, `METHOD@VOLUME.json` those about one volume: see Fault. A call
that waits makes `METHOD.waiting` or `METHOD@VOLUME.waiting`, and goes on when that is removed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

BEFORE, DURING, AFTER = "before", "during", "after"
FAIL, WAIT, DIE = "fail", "wait", "die"
_PERIOD = 0.02


class FaultError(Exception):
    """The call fails with a gRPC status of this name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Fault:
    """What happens to the next calls of a method: `where` in the call, what, and to how many.

    - before: nothing has been done yet; during: half of it; after: all of it, and the answer is missing.
    """

    what: str
    where: str = BEFORE
    times: int = 1
    code: str = "INTERNAL"
    message: str = "as the test wants it"


class Faults:
    """The driver's side. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Guards the files.
        self._lock = threading.Lock()

    def meet(self, method: str, volume: str, where: str) -> None:
        """Called wherever a call may meet one. Raises FaultError; does not return from what kills."""
        for name in (of_volume(method, volume), method):
            fault = self._take(name, where)
            if fault is not None:
                self._apply(name, fault)
                return

    def _apply(self, name: str, fault: Fault) -> None:
        if fault.what == FAIL:
            raise FaultError(fault.code, fault.message)
        if fault.what == DIE:
            os.kill(os.getpid(), signal.SIGKILL)
        waiting = self._directory / f"{name}.waiting"
        waiting.touch()
        while waiting.exists():
            time.sleep(_PERIOD)

    def _take(self, name: str, where: str) -> Fault | None:
        path = self._directory / f"{name}.json"
        with self._lock:
            try:
                fault = Fault(**json.loads(path.read_text()))
            except FileNotFoundError:
                return None
            if fault.where != where:
                return None
            if fault.times > 1:
                write(self._directory, name, dataclasses.replace(fault, times=fault.times - 1))
            else:
                path.unlink()
            return fault


def of_volume(method: str, volume: str) -> str:
    """What the files are called that are about calls of a method for one volume; for no volume: for any."""
    return f"{method}@{volume}" if volume else method


def write(directory: Path, name: str, fault: Fault) -> None:
    """Let a fault meet the next calls."""
    unfinished = directory / f".{name}"
    unfinished.write_text(json.dumps(dataclasses.asdict(fault)))
    unfinished.rename(directory / f"{name}.json")
