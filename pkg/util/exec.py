"""How a command ended, wherever it ran.

Go: k8s.io/utils/exec/exec.go
"""

from __future__ import annotations

from collections.abc import Sequence


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
