"""Make calls fail or wait, or kill the driver, according to files in a directory. The files survive the driver.

`METHOD.json` applies to the next calls of a method, and `METHOD@VOLUME.json` to those for one volume: see Fault. A call
that waits creates `METHOD.waiting` or `METHOD@VOLUME.waiting`, and continues when the file is removed.
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
    """Signal that the call fails with a gRPC status of this name."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Fault:
    """Describe a fault of the next calls of a method.

    `where` is the point of the call at which the fault happens:

    - before: the call has done nothing yet.
    - during: the call has done half of its work.
    - after: the call has done all of its work but has not returned.
    """

    what: str
    where: str = BEFORE
    times: int = 1
    code: str = "INTERNAL"
    message: str = "as the test wants it"


class Faults:
    """Apply the faults in the driver. All methods are thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The lock guards the files.
        self._lock = threading.Lock()

    def meet(self, method: str, volume: str, where: str) -> None:
        """Apply a fault at this point of a call, if there is one.

        Raise FaultError for a fault that fails the call. The method does not return from a fault that kills the driver.
        """
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
    """Return the name of the files for calls of a method: for one volume, or for any volume if `volume` is ""."""
    return f"{method}@{volume}" if volume else method


def write(directory: Path, name: str, fault: Fault) -> None:
    """Add a fault to the next calls."""
    unfinished = directory / f".{name}"
    unfinished.write_text(json.dumps(dataclasses.asdict(fault)))
    unfinished.rename(directory / f"{name}.json")
