"""Provide test tools: fake commands, checks for leaked descriptors, a client that dies, deep trees, and line counts.

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
    """Return the descriptors of this process and their targets. Each socket and pipe has a unique name.

    Other code in the process opens and closes descriptors meanwhile, so a test should check for new entries and not
    compare counts.
    """
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        # This is the descriptor of the listing itself, or one that other code has just closed.
        with contextlib.suppress(FileNotFoundError):
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


def open_inotify_instances() -> set[tuple[str, str]]:
    """Return the entries of open_files that are inotify instances, which all have the same name."""
    return {(fd, name) for fd, name in open_files() if "inotify" in name}


def reset(sock: socket.socket) -> None:
    """Close a connection the way the machine of a crashed client does, with a reset."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def lines_run(call: Callable[[], object]) -> int:
    """Return the number of lines that the call executes, counting each iteration of a loop."""
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
    """Create a chain of `depth` directories below `top`, with a file in the last one, and remove it at the end.

    If a test leaves such a tree to pytest, pytest fails later, because its removal is recursive.
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
    """Run no commands: return the result of `answer` for each, and record them.

    `answer` returns the output of the command, or raises like Interface.run.
    """

    def __init__(self, answer: Callable[[list[str]], bytes] = lambda command: b"") -> None:
        self.answer = answer
        self.commands: list[list[str]] = []

    def run(self, command: Sequence[str], timeout: float | None = None) -> bytes:
        self.commands.append([*command])
        return self.answer([*command])


def exit_status(code: int, output: str = "") -> CodeExitError:
    """Return the error of a command that exits with the code."""
    return CodeExitError(Exception(f"exit status {code}"), code, output.encode())


def tree(root: Path) -> Path:
    """Create directories and files below `root`/t, and a link there to a directory outside of t. Return t."""
    (root / "t/a/b").mkdir(parents=True)
    (root / "t/a/file").write_text("x")
    (root / "t/link").symlink_to(root / "outside")
    (root / "outside").mkdir()
    (root / "outside/kept").write_text("x")
    return root / "t"
