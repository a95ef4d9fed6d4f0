"""Make a watch from a decoder that returns one event after the other.

Go: k8s.io/apimachinery/pkg/watch/streamwatcher.go
"""

from __future__ import annotations

import threading
from typing import Generic, Protocol, TypeVar

from pkg import golang, klog
from pkg.apimachinery.watch.watch import ERROR, Event

T = TypeVar("T")


class Decoder(Protocol[T]):
    def decode(self) -> Event[T] | None:
        """Wait for the next event and return it, or None at the end of the stream.

        Raise an error if the stream breaks.

        """
        ...

    def close(self) -> None:
        """End the stream; a waiting decode returns or raises an error at once."""
        ...


class Reporter(Protocol):
    def as_object(self, err: Exception) -> object:
        """Return the object for the error event that reports `err`."""
        ...


class StreamWatcher(Generic[T]):
    """Read events in a thread until the stream ends or stop is called."""

    def __init__(self, decoder: Decoder[T], reporter: Reporter, name: str = "watch") -> None:
        self._source = decoder
        self._reporter = reporter
        self._result: golang.Channel[Event[T]] = golang.Channel()
        self._done: golang.Channel[None] = golang.Channel()
        self._lock = threading.Lock()  # The lock guards _stopped.
        self._stopped = False
        golang.go(self._receive, name=name)

    def result_chan(self) -> golang.Channel[Event[T]]:
        return self._result

    def stop(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._done.close()
        self._source.close()

    def _receive(self) -> None:
        try:
            while (event := self._next()) is not None:
                if golang.select(self._done, golang.Send(self._result, event)).took(self._done):
                    return
                if event.type == ERROR:
                    return  # Events after an error are not useful.
        finally:
            self._result.close()
            self.stop()

    def _next(self) -> Event[T] | None:
        try:
            return self._source.decode()
        except (OSError, EOFError) as err:
            # The connection was cut; the watcher restarts from the last resource version.
            if not self._is_stopped():
                klog.v(5).info_s("Unable to decode an event from the watch stream", err=err)
            return None
        except Exception as err:
            # Any error in the stream is reported to the watcher, which must not hang.
            if self._is_stopped():
                return None
            reason = ValueError(f"unable to decode an event from the watch stream: {err}")
            return Event(ERROR, self._reporter.as_object(reason))  # type: ignore[arg-type]

    def _is_stopped(self) -> bool:
        with self._lock:
            return self._stopped
