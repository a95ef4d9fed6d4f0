"""Merge the updates of several sources, each of which has a channel of its own.

Go: pkg/kubelet/config/mux.go
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from pkg import golang
from pkg.apimachinery.util import runtime

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# `_RETRY_PERIOD` is the time, in seconds, after which the mux repeats an update that could not be merged completely.
_RETRY_PERIOD = 10.0


class Merger(Protocol[T_contra]):
    """Define the receiver of the sources' updates."""

    def merge(self, ctx: golang.Context, source: str, update: T_contra) -> bool:
        """Merge one update; report whether all of it was merged.

        The mux calls this method on the threads of the sources, so the method must be thread-safe. If the method
        returns False or raises, the mux later calls it again with the same update, unless the source has sent another
        one.
        """


class Mux(Generic[T]):
    """Give every source its own unbuffered channel, and pass the updates from each channel to the merger.

    The channels are unbuffered so that a source whose send has returned knows that its previous update has been merged.
    A source sends its full state each time, so the mux needs to repeat only the last update.
    """

    def __init__(self, merger: Merger[T]) -> None:
        self._merger = merger
        self._source_lock = threading.Lock()  # This lock guards _sources.
        self._sources: dict[str, golang.Channel[T]] = {}

    def channel_with_context(self, ctx: golang.Context, source: str) -> golang.Channel[T]:
        """Return the channel of the source. Every call for one source returns the same channel.

        The thread that drains the channel ends with ctx. Raise ValueError if the name is empty.
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
        """Return the channels by the names of their sources."""
        with self._source_lock:
            return dict(self._sources)

    def _listen(self, ctx: golang.Context, source: str, listen_channel: golang.Channel[T]) -> None:
        unmerged: list[T] = []  # `unmerged` holds the last update until it has been merged.
        while True:
            selected = golang.select(listen_channel, ctx.done(), timeout=_RETRY_PERIOD if unmerged else None)
            if selected.took(ctx.done()):
                return
            if update := selected.took(listen_channel):
                if not update.ok:
                    return
                unmerged = [update.value]
            try:
                # One update that makes the merger raise must not end the source, because the next update may be fine.
                # The mux repeats the update itself because most sources send only when something has changed.
                with runtime.contain("Unable to merge an update", ctx, source=source):
                    if self._merger.merge(ctx, source, unmerged[0]):
                        unmerged = []
            except golang.ContextError:
                return
