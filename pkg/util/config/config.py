"""A mux: one channel per source, all of them feeding one merger.

Go: pkg/util/config/config.go
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from pkg import golang
from pkg.apimachinery.util import runtime

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Merger(Protocol[T_contra]):
    """Takes in what the sources send."""

    def merge(self, ctx: golang.Context, source: str, update: T_contra) -> None:
        """Called for each update, on the thread of its source; must be safe to call from several at once."""


class Mux(Generic[T]):
    """Gives every source its own unbuffered channel and hands what comes out of it to the merger.

    Unbuffered, so that a source knows: once its send returned, the update before it has been merged.
    """

    def __init__(self, merger: Merger[T]) -> None:
        self._merger = merger
        self._source_lock = threading.Lock()  # guards _sources
        self._sources: dict[str, golang.Channel[T]] = {}

    def channel_with_context(self, ctx: golang.Context, source: str) -> golang.Channel[T]:
        """The channel of the source, the same one at each call; different sources form a union.

        The thread that drains it ends with ctx. Raises ValueError for an empty name.
        """
        if not source:
            raise ValueError("channel given an empty name")
        with self._source_lock:
            channel = self._sources.get(source)
            if channel is None:
                channel = golang.Channel[T]()
                self._sources[source] = channel
                golang.go(self._listen, ctx, source, channel, name=f"config-mux-{source}")
            return channel

    def sources(self) -> dict[str, golang.Channel[T]]:
        """The channels by the names of their sources."""
        with self._source_lock:
            return dict(self._sources)

    def _listen(self, ctx: golang.Context, source: str, listen_channel: golang.Channel[T]) -> None:
        # DIVERGES: Go's listener outlives its context until the channel is closed; ours ends with it.
        while True:
            selected = golang.select(listen_channel, ctx.done())
            if selected.index == 1 or not selected.ok:
                return
            try:
                # What one update makes the merger raise must not end the source: the next update may be better.
                with runtime.contain("Unable to merge an update", ctx, source=source):
                    self._merger.merge(ctx, source, selected.value)
            except golang.ContextError:
                return
