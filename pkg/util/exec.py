"""Commands, and how one ended, wherever it ran.

Go: k8s.io/utils/exec/exec.go
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Protocol

from pkg import klog

# How long a command that was killed may take to be gone, in seconds: the kernel may keep it.
_KILL_WAIT = 2.0


class CodeExitError(Exception):
    """A command ended with another code than 0; `err` says it in words, `output` is what it wrote."""

    def __init__(self, err: Exception, code: int, output: bytes = b"") -> None:
        super().__init__(str(err), code)
        self.err = err
        self.code = code
        self.output = output

    def __str__(self) -> str:
        return str(self.err)


class CommandTimedOutError(Exception):
    """A command took longer than the seconds it was given. Go: ErrCommandTimedOut of k8s.io/cri-client"""

    def __init__(self, cmd: Sequence[str], timeout: float) -> None:
        super().__init__(f'command timed out: "{" ".join(cmd)}" timed out after {timeout:g}s')


class Interface(Protocol):
    """Runs commands. Safe from any thread."""

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        """What the command wrote, errors too, once it has ended.

        Raises CodeExitError; FileNotFoundError or another OSError when it cannot be started; CommandTimedOutError
        when it takes longer than timeout seconds, None for any time.
        """
        ...


class Executor:
    """Runs commands on this machine."""

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except FileNotFoundError as err:
            raise FileNotFoundError(err.errno, f'"{command[0]}": executable file not found in $PATH') from err
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as err:
            _kill(process)
            raise CommandTimedOutError(command, timeout or 0.0) from err
        if process.returncode != 0:
            raise CodeExitError(Exception(_how_it_ended(process.returncode)), process.returncode, output)
        return output


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the process, without waiting for one that hangs in the kernel: it is reaped when another one starts."""
    process.kill()
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(_KILL_WAIT)
    except subprocess.TimeoutExpired:
        klog.warning_s("A command that was killed does not end", command=process.args, pid=process.pid)


def _how_it_ended(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal: {-code}"
