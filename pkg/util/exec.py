"""Run commands, and describe how a command ended, wherever it ran.

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

# A killed command gets this many seconds to end. It may hang in the kernel.
_KILL_WAIT = 2.0
# At most this many bytes of a command's output are kept. fsck prints a line for each fault of a file system, which
# users control.
MAX_OUTPUT = 1 << 20
# Errors and the log show this many characters of a command. The command of a pod may have six million characters after
# expansion. A probe would quote them for the log again and again, which takes seconds, and about 70 bytes for each
# character.
# DIVERGES (safer): this kubelet shows only the first MAX_SHOWN_COMMAND characters of a command.
# Go: k8s.io/cri-client/pkg/remote_runtime.go, (*remoteRuntimeService).ExecSync: the Go kubelet has no bound.
# Why: a probe with such a command would block all threads for seconds, again and again.
# Test: exec_test.py:test_long_command_that_takes_too_long_is_not_shown_as_a_whole
MAX_SHOWN_COMMAND = 10 << 10

# A program that took too long fails with this text of Go's.
DEADLINE_EXCEEDED = "context deadline exceeded"


def shown(cmd: Sequence[str]) -> str:
    """Return the command for messages, truncated to MAX_SHOWN_COMMAND."""
    return " ".join(shown_arguments(cmd))[:MAX_SHOWN_COMMAND]


def shown_arguments(cmd: Iterable[str]) -> list[str]:
    """Return the truncated command as arguments, for the log; the last argument may be cut."""
    arguments: list[str] = []
    room = MAX_SHOWN_COMMAND
    for argument in cmd:
        if room <= 0:
            break
        arguments.append(argument[:room])
        # One more character is for the space after the argument.
        room -= len(argument) + 1
    return arguments


class CodeExitError(Exception):
    """Signal that a command exited with a code other than 0.

    `err` describes the exit, `output` is what the command wrote.
    """

    def __init__(self, err: Exception, code: int, output: bytes = b"") -> None:
        super().__init__(str(err), code)
        self.err = err
        self.code = code
        self.output = output

    def __str__(self) -> str:
        return str(self.err)


class CommandTimedOutError(Exception):
    """Signal that a command took longer than its timeout, in seconds.

    Go: k8s.io/cri-client/pkg/remote_runtime.go, ErrCommandTimedOut
    """

    def __init__(self, cmd: Sequence[str], timeout: float) -> None:
        super().__init__(f'command timed out: "{shown(cmd)}" timed out after {timeout:g}s')


class ProgramError(Exception):
    """Signal that a program was killed because it took too long or wrote too much. `stderr` is its error output."""

    def __init__(self, message: str, stderr: bytes) -> None:
        super().__init__(message)
        self.stderr = stderr


class Completed(NamedTuple):
    """Describe how a program ended, and what it wrote. A negative code is the signal that ended it."""

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
    """Run an untrusted program in its own session, so that its child processes can be killed with it.

    Return once the program has ended and all processes have closed its output. Raise OSError or ValueError if it cannot
    be started. Raise ProgramError if it was killed, after `timeout` seconds or because it wrote more than `max_output`
    bytes. A killed program may hang in the kernel, for example when its file is on a dead server; this function does
    not wait for such a program.
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
    """Read stdout and stderr until both are closed. Raise ProgramError."""
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
        pass  # All processes of the group have ended.
    _wait_for_the_killed(process)


class Interface(Protocol):
    """Define how to run commands. All methods are thread-safe."""

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        """Run the command to its end, and return the first MAX_OUTPUT bytes of its stdout and stderr.

        Raise CodeExitError; FileNotFoundError or another OSError if the command cannot be started; and
        CommandTimedOutError if it takes longer than `timeout` seconds (None: no limit).
        """
        ...


class Executor:
    """Run commands on this machine."""

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
            # After any error, the caller treats the command as failed, so the command, for example a mkfs, must not
            # continue.
            if process.returncode is None:
                process.kill()
                _wait_for_the_killed(process)
            _close_output(process)
        if process.returncode != 0:
            raise CodeExitError(Exception(_how_it_ended(process.returncode)), process.returncode, output)
        return output


def _read_first(process: subprocess.Popen[bytes], limit: int, deadline: float | None) -> bytes:
    """Return the first `limit` bytes of the output. The rest is read too, so that the command can end.

    Raise TimeoutExpired if the output has not ended by the deadline.
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
    """Wait briefly for a killed process. One that hangs in the kernel is reaped when another process starts."""
    try:
        process.wait(_KILL_WAIT)
    except subprocess.TimeoutExpired:
        klog.warning_s("A killed command has not ended", command=process.args, pid=process.pid)


def _how_it_ended(code: int) -> str:
    return f"exit status {code}" if code >= 0 else f"signal: {-code}"
