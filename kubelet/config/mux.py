"""A mux: one channel per source, all of them feeding one merger.

Go: pkg/kubelet/config/mux.go
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from pkg import golang
from pkg.apimachinery.util import runtime

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# Seconds after which an update comes again that could not be merged as a whole.
_RETRY_PERIOD = 10.0


class Merger(Protocol[T_contra]):
    """Takes in what the sources send."""

    def merge(self, ctx: golang.Context, source: str, update: T_contra) -> bool:
        """Called for each update, on the thread of its source; must be safe to call from several at once.

        Returns whether the whole update was merged. If not, or if it raises, the same update comes again later, unless
        the source has sent another one.
        """


class Mux(Generic[T]):
    """Gives every source its own unbuffered channel and hands what comes out of it to the merger.

    Unbuffered, so that a source knows: once its send returned, the update before it has been merged. A source sends
    all that it has each time, so that only its last update needs to be merged again.
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
        unmerged: list[T] = []  # the last update, unless it was merged
        while True:
            selected = golang.select(listen_channel, ctx.done(), timeout=_RETRY_PERIOD if unmerged else None)
            if selected.took(ctx.done()):
                return
            if update := selected.took(listen_channel):
                if not update.ok:
                    return
                unmerged = [update.value]
            try:
                # What one update makes the merger raise must not end the source: the next update may be better. Nor can
                # a source be relied on to send the same again: most of them send when something has changed.
                with runtime.contain("Unable to merge an update", ctx, source=source):
                    if self._merger.merge(ctx, source, unmerged[0]):
                        unmerged = []
            except golang.ContextError:
                return
