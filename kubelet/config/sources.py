"""Which sources have been seen, and whether that is all of them.

Go: pkg/kubelet/config/sources.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

# Whether the named sources are all there are, and have delivered.
SourcesReadyFn = Callable[[set[str]], bool]


class SourcesReady(Protocol):
    """Tracks the sources that the kubelet has seen."""

    def add_source(self, source: str) -> None:
        """Note that the source was seen."""

    def all_ready(self) -> bool:
        """Whether every configured source was seen."""


class SourcesImpl:
    """Implements SourcesReady. Safe from any thread."""

    def __init__(self, sources_ready_fn: SourcesReadyFn) -> None:
        self._lock = threading.Lock()  # guards _sources_seen
        self._sources_seen: set[str] = set()
        self._sources_ready_fn = sources_ready_fn

    def add_source(self, source: str) -> None:
        with self._lock:
            self._sources_seen.add(source)

    def all_ready(self) -> bool:
        with self._lock:
            seen = set(self._sources_seen)
        return self._sources_ready_fn(seen)
