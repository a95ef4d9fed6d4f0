"""A stand-in for the commands of a machine, what a test has left open, a client that dies, a deep tree, and how much
work a call is.

Go: k8s.io/utils/exec/testing/fake_exec.go
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from pkg.util.exec import CodeExitError


def open_files() -> set[tuple[str, str]]:
    """Descriptors of this process, and what they are of: sockets have names of their own, pipes too.

    What others have open in the process comes and goes: ask whether there is something new, not how many there are.
    """
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one of this look, and those of others that end
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def open_inotify_instances() -> set[tuple[str, str]]:
    """Those of open_files that are inotify instances, which all have one name."""
    return {(fd, name) for fd, name in open_files() if "inotify" in name}


def reset(sock: socket.socket) -> None:
    """Close a connection as the machine of a client that died does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def lines_run(call: Callable[[], object]) -> int:
    """How many lines, counting each turn of a loop, the call runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@contextlib.contextmanager
def deep_tree(top: str, depth: int, name: str = "d") -> Iterator[None]:
    """A chain of so many directories below top, with a file in the last one, that is removed at the end.

    Who leaves one to pytest makes it fail later: its removal is recursive.
    """
    os.makedirs(top)
    try:
        fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
        for _ in range(depth):
            os.mkdir(name, dir_fd=fd)
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = below
        os.close(os.open("last", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)
        yield
    finally:
        subprocess.run(["rm", "-rf", top], check=True)


class FakeExec:
    """Answers commands with what `answer` gives for them, and remembers them.

    answer returns what the command writes, or raises as Interface.run does.
    """

    def __init__(self, answer: Callable[[list[str]], bytes] = lambda command: b"") -> None:
        self.answer = answer
        self.commands: list[list[str]] = []

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        self.commands.append([*command])
        return self.answer([*command])


def exit_status(code: int, output: str = "") -> CodeExitError:
    """What a command that ends with the code raises."""
    return CodeExitError(Exception(f"exit status {code}"), code, output.encode())


def tree(root: Path) -> Path:
    """Make directories and files below `root`/t, and a link there to a directory outside of it. Returns t."""
    (root / "t/a/b").mkdir(parents=True)
    (root / "t/a/file").write_text("x")
    (root / "t/link").symlink_to(root / "outside")
    (root / "outside").mkdir()
    (root / "outside/kept").write_text("x")
    return root / "t"
