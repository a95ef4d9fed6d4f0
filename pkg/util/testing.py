"""A stand-in for the commands of a machine.

Go: k8s.io/utils/exec/testing/fake_exec.go
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pkg.util.exec import CodeExitError


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
