"""Probe a container with a command inside the container.

Go: pkg/probe/exec/exec.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.probe.probe import Result
from pkg.util import exec as utilexec

# At most this many bytes of the output are kept.
MAX_READ_LENGTH = 10 * 1024


def probe_exec(run: Callable[[], bytes]) -> tuple[Result, str]:
    """Run the command, and return its result and its output.

    `run` returns the output, or raises CodeExitError or CommandTimedOutError. Other exceptions of `run` propagate,
    because they leave the container's health unknown.
    """
    try:
        return Result.SUCCESS, _text(run())
    except utilexec.CodeExitError as err:
        return Result.FAILURE, _text(err.output)
    except utilexec.CommandTimedOutError as err:
        return Result.FAILURE, str(err)


def _text(output: bytes) -> str:
    return output[:MAX_READ_LENGTH].decode(errors="replace")
