"""Run a program of the tests as a process that writes a line to its standard output when it serves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from framework.containerd import ROOT


def environment() -> dict[str, str]:
    """Return this process's environment, with a PYTHONPATH that contains the checkout and test/."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'test'}"}


class Program:
    """Run `python -m` with a module of the checkout or of test/. The program can start again after its end."""

    def __init__(self, module: str, arguments: Sequence[str], log: Path) -> None:
        self._module = module
        self._command = [sys.executable, "-m", module, *arguments]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> str:
        """Start the program and return its first line when it serves. Raise RuntimeError if it ends instead."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=ROOT,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} did not start: {self._log.read_text()[-2000:]}")
        return line.decode()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, number: signal.Signals, timeout: float = 30) -> None:
        """Send the program a signal and wait until it has ended. If it does not run, the call does nothing.

        After `timeout` seconds the method kills the program and raises subprocess.TimeoutExpired.
        """
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
