"""Commands, and how one ended, wherever it ran.

Go: k8s.io/utils/exec/exec.go
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import IO, NamedTuple, Protocol

from pkg import klog

# How long a command that was killed may take to be gone, in seconds: the kernel may keep it.
_KILL_WAIT = 2.0
# Bytes of a command's output that are kept: fsck tells of each fault in a file system that somebody else has made.
MAX_OUTPUT = 1 << 20
# Characters of a command that are shown, in errors and in the log. A pod's may have six million once it is expanded,
# and a probe has them quoted for the log again and again, which takes seconds and some 70 bytes for each.
# DIVERGES (safer): of a longer command the beginning is shown.
# Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).ExecSync: has no bound.
# Why: a probe with such a command would keep all threads waiting for seconds, again and again.
# Test: exec_test.py:test_long_command_that_takes_too_long_is_not_shown_as_a_whole
MAX_SHOWN_COMMAND = 10 << 10

# What became of a program that took too long, in Go's words.
DEADLINE_EXCEEDED = "context deadline exceeded"


def shown(cmd: Sequence[str]) -> str:
    """The command for messages, as much of it as is shown."""
    return " ".join(shown_arguments(cmd))[:MAX_SHOWN_COMMAND]


def shown_arguments(cmd: Iterable[str]) -> list[str]:
    """The same in its arguments, for the log; the last one may be cut."""
    arguments: list[str] = []
    room = MAX_SHOWN_COMMAND
    for argument in cmd:
        if room <= 0:
            break
        arguments.append(argument[:room])
        # With the blank behind it.
        room -= len(argument) + 1
    return arguments


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
    """A command took longer than the seconds it was given.

    Go: k8s.io/cri-client/pkg/remote_runtime.go, ErrCommandTimedOut
    """

    def __init__(self, cmd: Sequence[str], timeout: float) -> None:
        super().__init__(f'command timed out: "{shown(cmd)}" timed out after {timeout:g}s')


class ProgramError(Exception):
    """A program was killed, because it took too long or wrote too much; `stderr` is what it wrote there."""

    def __init__(self, message: str, stderr: bytes) -> None:
        super().__init__(message)
        self.stderr = stderr


class Completed(NamedTuple):
    """How a program ended, and what it wrote. A negative code is the signal that ended it."""

    code: int
    stdout: bytes
    stderr: bytes


def run_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    stdin: IO[bytes] | int | None,
    timeout: float,
    max_output: int,
) -> Completed:
    """Run a program that nobody vouches for, in a session of its own, so that what it starts can be ended with it.

    Returns once it has ended and everybody has closed its output. Raises OSError or ValueError when it cannot be
    started; ProgramError, when it has been killed, after `timeout` seconds or for more than `max_output` bytes. One
    that hangs in the kernel, for its file is on a server that is gone, is not waited for.
    """
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    output = bytearray(), bytearray()
    deadline = monotonic() + timeout
    try:
        _read_output(process, output, deadline, max_output)
        code = process.wait(max(0.0, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        raise ProgramError(DEADLINE_EXCEEDED, bytes(output[1])) from None
    finally:
        if process.returncode is None:
            _kill_group(process)
        _close_output(process)
    return Completed(code, bytes(output[0]), bytes(output[1]))


def _read_output(
    process: subprocess.Popen[bytes], output: tuple[bytearray, bytearray], deadline: float, max_output: int
) -> None:
    """Read stdout and stderr until both are closed. Raises ProgramError."""
    with selectors.DefaultSelector() as selector:
        for stream, kept in zip((process.stdout, process.stderr), output, strict=True):
            assert stream is not None
            selector.register(stream, selectors.EVENT_READ, kept)
        while selector.get_map():
            remaining = deadline - monotonic()
            if remaining <= 0:
                raise ProgramError(DEADLINE_EXCEEDED, bytes(output[1]))
            for key, _ in selector.select(remaining):
                data = os.read(key.fd, 65536)
                key.data.extend(data)
                if not data:
                    selector.unregister(key.fileobj)
                if len(key.data) > max_output:
                    raise ProgramError(f"wrote more than {max_output} bytes", bytes(output[1]))


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # Nothing of it is left.
    _wait_for_the_killed(process)


class Interface(Protocol):
    """Runs commands. Safe from any thread."""

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        """The first MAX_OUTPUT bytes of what the command wrote, errors too, once it has ended.

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
        deadline = None if timeout is None else monotonic() + timeout
        try:
            output = _read_first(process, MAX_OUTPUT, deadline)
            process.wait(_remaining(deadline))
        except subprocess.TimeoutExpired as err:
            raise CommandTimedOutError(command, timeout or 0.0) from err
        finally:
            # Whatever failed: a command that the caller takes for failed must not go on, a mkfs for instance.
            if process.returncode is None:
                process.kill()
                _wait_for_the_killed(process)
            _close_output(process)
        if process.returncode != 0:
            raise CodeExitError(Exception(_how_it_ended(process.returncode)), process.returncode, output)
        return output


def _read_first(process: subprocess.Popen[bytes], limit: int, deadline: float | None) -> bytes:
    """The first `limit` bytes of the output; the rest is read too, so that the command can end.

    Raises TimeoutExpired when the output has not ended by the deadline.
    """
    assert process.stdout is not None
    kept = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(remaining := _remaining(deadline)):
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return bytes(kept)
            kept += data[: limit - len(kept)]
    raise subprocess.TimeoutExpired(process.args, remaining or 0.0)


def _remaining(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - monotonic())


def _close_output(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _wait_for_the_killed(process: subprocess.Popen[bytes]) -> None:
    """Not for one that hangs in the kernel: it is reaped when another one starts."""
    try:
        process.wait(_KILL_WAIT)
    except subprocess.TimeoutExpired:
        klog.warning_s("A command that was killed does not end", command=process.args, pid=process.pid)


def _how_it_ended(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal: {-code}"
