"""Measure in a separate process how much memory a piece of work takes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def peak_growth(module: str, function: str, *args: str) -> float:
    """Call the module's function with these arguments in a new process.

    Return by how many MiB the call raised the peak of the process's resident memory. Raise AssertionError with the
    output of the process if the call raises.
    """
    command = [sys.executable, "-m", "framework.memory", module, function, *args]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'test'}"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return float(ended.stdout.splitlines()[-1])


def _main(module: str, function: str, *args: str) -> None:
    work = getattr(importlib.import_module(module), function)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # Writing 5 resets the peak.
    work(*args)
    print((_status("VmHWM") - before) / 1024)


def _status(name: str) -> int:
    """Return a size from /proc/self/status in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


if __name__ == "__main__":
    _main(*sys.argv[1:])
