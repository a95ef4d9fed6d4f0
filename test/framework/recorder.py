"""All that happens to objects of an API server, recorded by a watch: to wait without asking, and to look back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go import kubernetes


class Object(Protocol):
    """What every kind of object has."""

    metadata: metav1.ObjectMeta


T = TypeVar("T", bound=Object)
R = TypeVar("R")

# Seconds until the next attempt, when the API server is away.
RETRY = 0.2


@dataclass(frozen=True)
class Seen(Generic[T]):
    """One version of an object. `type` is that of the watch, `at` the monotonic time when it came."""

    type: str
    object: T
    at: float


class Recorder(Generic[T]):
    """Watches from when it is made until it is stopped, over ends of the watch and absences of the server.

    Objects are known by name: use one for each namespace. Safe from any thread; `wait_for` is woken by what
    happens and asks nobody.
    """

    def __init__(
        self,
        name: str,
        client: kubernetes.ResourceClient[T],
        field_selector: str = "",
    ) -> None:
        self._client = client
        self._options = metav1.ListOptions(field_selector=field_selector)
        # Guards what follows. Whoever waits looks at it while holding it, so it is reentrant.
        self._changed = threading.Condition(threading.RLock())
        self._seen: dict[str, list[Seen[T]]] = {}
        self._ctx, self._cancel = golang.with_cancel(golang.background())
        self._thread = golang.go(self._run, name=f"recorder-{name}")

    def stop(self) -> None:
        self._cancel()
        self._thread.join()

    # What was seen.

    def history(self, name: str) -> list[Seen[T]]:
        """All versions of the object of this name, and of others that had the name before, oldest first."""
        with self._changed:
            return list(self._seen.get(name, []))

    def latest(self, name: str) -> T | None:
        """The object as it is now; None if there is none."""
        with self._changed:
            seen = self._seen.get(name)
            return seen[-1].object if seen and seen[-1].type != watch.DELETED else None

    def all(self) -> list[T]:
        """All objects that there are now, by name."""
        with self._changed:
            return [found for name in sorted(self._seen) if (found := self.latest(name)) is not None]

    def wait_for(self, what: str, look: Callable[[], R], timeout: float, describe: Callable[[], object]) -> R:
        """Return what look returns once that is true; it is asked again whenever something has happened.

        Raises AssertionError after timeout seconds.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := look()):
                if (left := deadline - time.monotonic()) <= 0:
                    raise AssertionError(f"not within {timeout:g} s: {what}; last seen: {describe()}")
                self._changed.wait(left)
            return found

    # Watching.

    def _run(self) -> None:
        while self._ctx.err() is None:
            try:
                version = self._list()
                while self._ctx.err() is None:
                    version = self._watch(version)
            except golang.Canceled:
                return
            except (OSError, apierrors.StatusError):
                # It may be away for as long as a test wants, or have forgotten the version: begin anew.
                self._ctx.wait(RETRY)

    def _list(self) -> str:
        """Note what changed since we last watched; return the version to go on from."""
        found = self._client.list(self._ctx, self._options)
        with self._changed:
            present = {each.metadata.name for each in found.items}
            for name in set(self._seen) - present:
                if (lost := self.latest(name)) is not None:
                    self._note(watch.DELETED, lost)
            for each in found.items:
                known = self.latest(each.metadata.name)
                if known is None or known.metadata.resource_version != each.metadata.resource_version:
                    self._note(watch.ADDED if known is None else watch.MODIFIED, each)
        return found.metadata.resource_version

    def _watch(self, version: str) -> str:
        """Note what happens until the server ends the watch. Raises StatusError if the version is too old."""
        options = msgspec.structs.replace(self._options, resource_version=version, allow_watch_bookmarks=True)
        running = self._client.watch(self._ctx, options)
        try:
            for event in running.result_chan():
                if event.type == watch.ERROR:
                    assert isinstance(event.object, metav1.Status)
                    raise apierrors.StatusError(event.object)
                version = event.object.metadata.resource_version
                if event.type != watch.BOOKMARK:
                    self._note(event.type, event.object)
        finally:
            running.stop()
        return version

    def _note(self, type_: str, obj: T) -> None:
        with self._changed:
            self._seen.setdefault(obj.metadata.name, []).append(Seen(type_, obj, time.monotonic()))
            self._changed.notify_all()
