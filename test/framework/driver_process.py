"""Run a test driver as a process, make its calls fail, and read its call log."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from csi_driver import calls as call_log
from csi_driver import faults
from csi_driver.calls import Call

from framework.program import Program
from framework.waiting import wait_for

TIMEOUT = 120.0


class DriverProcess:
    """Run a driver within a `with` block. `state` is the directory of its data, its call log and its faults.

    The methods name volumes. For a driver that has no volumes, the names are those of its own objects.
    """

    def __init__(self, folder: Path, name: str, kubelet_root: Path, program: str, flags: Mapping[str, object]) -> None:
        self.name = name
        self.state = folder / name
        registrations = kubelet_root / "plugins_registry"
        registrations.mkdir(parents=True, exist_ok=True)
        flags = {"name": name, "registration-dir": registrations, "state": self.state, **flags}
        self.log = folder / f"{name}.log"
        self._program = Program(program, [f"--{flag}={value}" for flag, value in flags.items()], self.log)
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "faults").mkdir(exist_ok=True)

    def start(self) -> None:
        """Start the driver and return when it serves."""
        self._program.start()

    @property
    def running(self) -> bool:
        return self._program.running

    def kill(self) -> None:
        self._program.end(signal.SIGKILL)

    def stop(self) -> None:
        """Send the driver SIGTERM and wait until it has ended."""
        self._program.end(signal.SIGTERM)

    def wait_for_death(self) -> None:
        """Wait until a fault has killed the driver."""
        wait_for(f"driver {self.name} is dead", lambda: not self.running, TIMEOUT)
        self.kill()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.clean()

    def clean(self) -> None:
        """Remove from the machine what a failed test has left."""

    def let(self, method: str, what: str, where: str = faults.BEFORE, volume: str = "", **more: object) -> None:
        """Add a fault to the next call of a method, for one volume or for any."""
        fault = faults.Fault(what, where, **more)  # type: ignore[arg-type]
        faults.write(self.state / "faults", faults.of_volume(method, volume), fault)

    def wait_for_waiting(self, method: str, volume: str = "", timeout: float = TIMEOUT) -> None:
        """Wait until a call has reached a fault that makes it wait."""
        waiting = self._waiting(method, volume)
        wait_for(f"a call of {method} for {volume} that waits", waiting.exists, timeout, self.describe)

    def go_on(self, method: str, volume: str = "") -> None:
        """Let a waiting call continue."""
        self._waiting(method, volume).unlink(missing_ok=True)

    def forget_faults(self) -> None:
        """Remove all faults. Waiting calls continue, and no other call fails."""
        for path in (self.state / "faults").iterdir():
            path.unlink()

    def _waiting(self, method: str, volume: str) -> Path:
        return self.state / "faults" / f"{faults.of_volume(method, volume)}.waiting"

    def mark(self, what: str) -> None:
        call_log.mark(self.state / "calls.jsonl", what)

    def calls(self, *methods: str, volume: str = "") -> list[Call]:
        """Return all calls in the order in which they began, or only those of some methods or about one volume."""
        found = call_log.read(self.state / "calls.jsonl")
        return [call for call in found if (not methods or call.method in methods) and volume in ("", call.volume)]

    def wait_for_call(self, method: str, code: str = "OK", count: int = 1, timeout: float = TIMEOUT) -> Call:
        """Wait until `count` calls of a method have ended with this code, and return the last of them."""

        def look() -> list[Call]:
            found = [call for call in self.calls(method) if call.code == code]
            return found if len(found) >= count else []

        return wait_for(f"{count} x {method} with {code}", look, timeout, self.describe)[count - 1]

    def wait_for_call_of(self, method: str, volume: str, timeout: float = TIMEOUT) -> Call:
        """Wait until a call for a volume has succeeded, and return the last such call."""

        def look() -> Call | None:
            return next((call for call in reversed(self.calls(method, volume=volume)) if call.code == "OK"), None)

        found = wait_for(f"{method} for {volume}", look, timeout, self.describe)
        assert found is not None
        return found

    def describe(self) -> str:
        lines = [
            f"{each.began}-{each.ended} {each.method} {each.volume} {each.path} {each.code or 'open'} {each.message}"
            for each in self.calls()
        ]
        return "\n".join(["", *lines])
