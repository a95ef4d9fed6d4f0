"""All that happens to objects of an API server, recorded by a watch: to wait without asking, and to look back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kubernetes.client import ApiException
from kubernetes.watch import Watch
from urllib3.exceptions import HTTPError, ProtocolError

R = TypeVar("R")

# Types of events that a watch tells of.
ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
# Seconds until the next attempt, when the API server is away.
RETRY = 0.2
# Seconds until a watch that has not ended is told to end again.
STOP_RETRY = 0.1


@dataclass(frozen=True)
class Seen:
    """One version of an object, a model of the client's. `type` is that of the watch, `at` the monotonic time when it
    came.
    """

    type: str
    object: Any
    at: float


class Recorder:
    """Watches from when it is made until it is stopped, over ends of the watch and absences of the server.

    Objects are known by name: use one for each namespace. Safe from any thread; `wait_for` is woken by what
    happens and asks nobody.
    """

    def __init__(self, list_objects: Callable[..., Any], *args: str) -> None:
        """Take what `Watch.stream` takes, as in `Recorder(core.list_namespaced_pod, "default")`."""
        self._list_objects = list_objects
        self._args = args
        # Guards what follows. Whoever waits looks at it while holding it, so it is reentrant.
        self._changed = threading.Condition(threading.RLock())
        self._seen: dict[str, list[Seen]] = {}
        self._stopping = threading.Event()
        self._watch = Watch()
        name = "-".join(["recorder", list_objects.__name__, *args])
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        while self._thread.is_alive():
            # Again, for a watch that was just beginning takes no notice.
            self._watch.stop()
            self._thread.join(STOP_RETRY)

    # What was seen.

    def history(self, name: str) -> list[Seen]:
        """All versions of the object of this name, and of others that had the name before, oldest first."""
        with self._changed:
            return list(self._seen.get(name, []))

    def latest(self, name: str) -> Any:
        """The object as it is now; None if there is none."""
        with self._changed:
            seen = self._seen.get(name)
            return seen[-1].object if seen and seen[-1].type != DELETED else None

    def all(self) -> list[Any]:
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
        while not self._stopping.is_set():
            try:
                self._follow(self._catch_up())
            except (ApiException, HTTPError):
                # It may be away for as long as a test wants, or have forgotten the version: begin anew.
                self._stopping.wait(RETRY)

    def _catch_up(self) -> str:
        """Note what changed since we last watched; return the version to go on from."""
        found = self._list_objects(*self._args)
        with self._changed:
            present = {each.metadata.name for each in found.items}
            for name in set(self._seen) - present:
                if (lost := self.latest(name)) is not None:
                    self._note(DELETED, lost)
            for each in found.items:
                known = self.latest(each.metadata.name)
                if known is None or known.metadata.resource_version != each.metadata.resource_version:
                    self._note(ADDED if known is None else MODIFIED, each)
        return str(found.metadata.resource_version)

    def _follow(self, version: str) -> None:
        """Note what happens until told to stop.

        Raises ApiException if the server has forgotten the version, HTTPError if it is away.
        """
        while not self._stopping.is_set():
            since = {"resource_version": version, "allow_watch_bookmarks": True}
            try:
                for event in self._watch.stream(self._list_objects, *self._args, **since):
                    version = event["raw_object"]["metadata"]["resourceVersion"]
                    if event["type"] != BOOKMARK:
                        self._note(event["type"], event["object"])
            except ProtocolError:
                # The connection was cut: go on from there, so that no version is missed.
                continue

    def _note(self, type_: str, obj: Any) -> None:
        with self._changed:
            self._seen.setdefault(obj.metadata.name, []).append(Seen(type_, obj, time.monotonic()))
            self._changed.notify_all()
