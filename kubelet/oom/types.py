"""Define the watcher of processes that the kernel kills when memory runs out.

Go: pkg/kubelet/oom/types.go
"""

from __future__ import annotations

from typing import Protocol

from pkg import golang
from pkg.api.core import v1


class Watcher(Protocol):
    """Define a watcher that creates events about killed processes."""

    def start(self, ctx: golang.Context, ref: v1.ObjectReference) -> None:
        """Start a thread that creates events about the object `ref` until `ctx` ends."""
        ...
