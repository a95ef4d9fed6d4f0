"""Test running commands."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import sys
from typing import Any

import pytest

from pkg.util import exec as utilexec
from pkg.util.testing import open_files


def test_output_and_how_it_ended() -> None:
    before = open_files()
    assert utilexec.Executor().run(["sh", "-c", "echo out; echo err >&2"]) == b"out\nerr\n"
    with pytest.raises(utilexec.CodeExitError, match="exit status 3") as raised:
        utilexec.Executor().run(["sh", "-c", "echo why; exit 3"])
    assert (raised.value.code, raised.value.output) == (3, b"why\n")
    with pytest.raises(utilexec.CodeExitError, match="signal: 9"):
        utilexec.Executor().run(["sh", "-c", "kill -9 $$"])
    with pytest.raises(FileNotFoundError, match="executable file not found"):
        utilexec.Executor().run(["no-such-command"])
    assert open_files() <= before


@pytest.mark.parametrize("script", ["exec sleep 600", "exec >/dev/null 2>&1; exec sleep 600", "exec yes"])
def test_command_that_takes_too_long_is_killed(script: str) -> None:
    before = open_files()
    with pytest.raises(utilexec.CommandTimedOutError, match=r"timed out after 0\.2s"):
        utilexec.Executor().run(["sh", "-c", script], 0.2)
    assert open_files() <= before


def test_long_command_that_takes_too_long_is_not_shown_as_a_whole() -> None:
    command = ["sleep", *["x" * 100_000] * 60]
    text = str(utilexec.CommandTimedOutError(command, 1))
    assert text == f'command timed out: "{" ".join(command)[: utilexec.MAX_SHOWN_COMMAND]}" timed out after 1s'
    assert len(text) < 11_000


def test_arguments_that_are_shown() -> None:
    assert utilexec.shown_arguments(["a", "", "b c"]) == ["a", "", "b c"]
    assert utilexec.shown_arguments(["a", "b" * 10_238, "c"]) == ["a", "b" * 10_238]
    assert utilexec.shown_arguments(["a", "b" * 1_000_000, "c"]) == ["a", "b" * 10_238]
    assert len(utilexec.shown_arguments([""] * 1_000_000)) == 10_240


def test_command_whose_output_cannot_be_read_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is killed if its output cannot be read.

    Otherwise the command would continue while its caller considers it failed, and retries.
    """

    def no_descriptor() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    started: list[subprocess.Popen[bytes]] = []

    class Program(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    before = open_files()
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Too many open files"):
        patch.setattr(subprocess, "Popen", Program)
        patch.setattr(selectors, "DefaultSelector", no_descriptor)
        utilexec.Executor().run(["sleep", "60"])
    try:
        assert started[0].poll() == -signal.SIGKILL
    finally:
        started[0].kill()
        started[0].wait()
    assert open_files() <= before


def test_program_that_cannot_be_killed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Program(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", Program)
        patch.setattr(os, "killpg", lambda group, number: None)
        patch.setattr(utilexec, "_KILL_WAIT", 0.1)
        with pytest.raises(utilexec.ProgramError, match="deadline exceeded"):
            utilexec.run_program(["sleep", "30"], os.environ, None, 0.1, 1000)
    assert started[0].poll() is None
    started[0].kill()
    started[0].wait()
    assert open_files() <= before


def test_memory_for_the_output_of_a_command_stays_bounded() -> None:
    program = (
        "import resource\n"
        "from pkg.util import exec as utilexec\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "output = utilexec.Executor().run(['head', '-c', str(100 << 20), '/dev/zero'])\n"
        "assert len(output) == utilexec.MAX_OUTPUT\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert int(done.stdout) < 16 * 1024
