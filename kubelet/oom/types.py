"""Who watches for processes that die because memory is short.

Go: pkg/kubelet/oom/types.go
"""

from __future__ import annotations

from typing import Protocol

from pkg import golang
from pkg.api.core import v1


class Watcher(Protocol):
    """Makes events of them."""

    def start(self, ctx: golang.Context, ref: v1.ObjectReference) -> None:
        """Watches, on a thread that ends with ctx; events are about ref."""
        ...
