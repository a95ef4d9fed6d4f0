"""How a command ended, wherever it ran.

Go: k8s.io/utils/exec/exec.go
"""

from __future__ import annotations


class CodeExitError(Exception):
    """A command ended with another code than 0; `err` says it in words."""

    def __init__(self, err: Exception, code: int) -> None:
        super().__init__(str(err), code)
        self.err = err
        self.code = code

    def __str__(self) -> str:
        return str(self.err)

    def exited(self) -> bool:
        """Whether the command ended by itself."""
        return True

    def exit_status(self) -> int:
        return self.code
