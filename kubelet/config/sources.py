"""Track which pod sources have been seen, and whether these are all sources.

Go: pkg/kubelet/config/sources.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

# A `SourcesReadyFn` is a function that reports whether the named sources are all sources, and each has sent its full
# state.
SourcesReadyFn = Callable[[set[str]], bool]


class SourcesReady(Protocol):
    """Define the record of the sources that the kubelet has seen."""

    def add_source(self, source: str) -> None:
        """Record that the source has been seen."""

    def all_ready(self) -> bool:
        """Report whether every configured source has been seen."""


class SourcesImpl:
    """Record the sources that the kubelet has seen. All methods are thread-safe."""

    def __init__(self, sources_ready_fn: SourcesReadyFn) -> None:
        self._lock = threading.Lock()  # This lock guards _sources_seen.
        self._sources_seen: set[str] = set()
        self._sources_ready_fn = sources_ready_fn

    def add_source(self, source: str) -> None:
        with self._lock:
            self._sources_seen.add(source)

    def all_ready(self) -> bool:
        with self._lock:
            seen = set(self._sources_seen)
        return self._sources_ready_fn(seen)
