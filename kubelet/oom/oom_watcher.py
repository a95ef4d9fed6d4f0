"""Create events about processes that the kernel killed because the machine was out of memory.

Go: pkg/kubelet/oom/oom_watcher_linux.go
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from kubelet.cadvisor.oomparser import OomInstance, OomParser
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery import clock
from pkg.apimachinery.util.runtime import contain

if TYPE_CHECKING:
    from kubelet.oom.types import Watcher
    from pkg.client_go.tools import record

SYSTEM_OOM_EVENT = "SystemOOM"
# The kernel's report names this cgroup when the machine as a whole was out of memory.
_RECORD_EVENT_CONTAINER_NAME = "/"
# The API server keeps events for this long by default.
_EVENT_TTL = timedelta(hours=1)


class Streamer(Protocol):
    """Define the source of the kernel's reports."""

    def stream_ooms(self, ctx: golang.Context) -> Iterator[OomInstance]:
        """Yield old reports first, then new ones, until `ctx` is done."""
        ...


class OomWatcher:
    """Implement Watcher.

    Go: realWatcher

    DIVERGES (fault of Go): after its start the kubelet reads the kernel's old log too, but reports only the last hour
    of it.
    Go: pkg/kubelet/oom/oom_watcher_linux.go, (*realWatcher).Start: it reports the whole log, however old.
    Why: each restart of the kubelet would report the same old events as if they happened now.
    Test: oom_watcher_test.py:test_events
    """

    def __init__(
        self,
        recorder: record.EventRecorder,
        oom_streamer: Streamer | None = None,
        clock_: clock.Clock | None = None,
    ) -> None:
        """Raise OSError if the kubelet may not read the kernel's log, for example in a user namespace."""
        self._recorder = recorder
        self._oom_streamer = oom_streamer or OomParser()
        self._clock = clock_ or clock.RealClock()

    def start(self, ctx: golang.Context, ref: v1.ObjectReference) -> None:
        golang.go(self._watch, ctx, ref, name="oom-watcher")

    def _watch(self, ctx: golang.Context, ref: v1.ObjectReference) -> None:
        since = self._clock.steady() - _EVENT_TTL
        # The events are only information for the operator; the kubelet works without them.
        with contain("Failed to follow OOM notifications", golang.background()):
            for event in self._oom_streamer.stream_ooms(ctx):
                if event.victim_container_name != _RECORD_EVENT_CONTAINER_NAME or event.time_of_death < since:
                    continue
                with contain("Failed to report an OOM", golang.background(), oom=event):
                    self._tell(event, ref)
        if ctx.err() is None:
            klog.error_s(None, "Unexpectedly stopped receiving OOM notifications")

    def _tell(self, event: OomInstance, ref: v1.ObjectReference) -> None:
        klog.v(1).info_s("Got sys oom event", event=event)
        message = "System OOM encountered"
        if event.process_name and event.pid:
            message = f"{message}, victim process: {event.process_name}, pid: {event.pid}"
        self._recorder.event(ref, v1.EVENT_TYPE_WARNING, SYSTEM_OOM_EVENT, message)


if TYPE_CHECKING:

    def _check(watcher: OomWatcher) -> Watcher:
        return watcher
