"""Probing by a command in the container.

Go: pkg/probe/exec/exec.go
"""

from __future__ import annotations

from collections.abc import Callable

from pkg.probe.probe import Result

# Bytes of output that are kept.
MAX_READ_LENGTH = 10 * 1024


class CommandTimedOutError(Exception):
    """The command did not end in time."""


class CommandExitError(Exception):
    """The command ended with another exit code than 0."""

    def __init__(self, exit_code: int, output: bytes) -> None:
        super().__init__(f"command exited with {exit_code}")
        self.exit_code = exit_code
        self.output = output


def probe_exec(run: Callable[[], bytes]) -> tuple[Result, str]:
    """Run the command; its outcome and what it wrote.

    run returns the output, or raises CommandExitError or CommandTimedOutError. What else it raises comes out: nobody
    knows then how the container is.
    """
    try:
        return Result.SUCCESS, _text(run())
    except CommandExitError as err:
        return Result.FAILURE, _text(err.output)
    except CommandTimedOutError as err:
        return Result.FAILURE, str(err)


def _text(output: bytes) -> str:
    return output[:MAX_READ_LENGTH].decode(errors="replace")
