"""Record everything that happens to objects of an API server, so that tests can wait without polling and look back."""

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

# These are the types of the events of a watch.
ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"
# RETRY is the time, in seconds, before the next attempt when the API server does not respond.
RETRY = 0.2
# STOP_RETRY is the time, in seconds, after which a watch that has not ended is stopped again.
STOP_RETRY = 0.1


@dataclass(frozen=True)
class Seen:
    """Hold one version of an object.

    `object` is a model of the client. `type` is the type of the watch event, and `at` the monotonic time when it came.
    """

    type: str
    object: Any
    at: float


class Recorder:
    """Watch objects from now on until `stop`, even if the watch or the server ends meanwhile.

    All methods are thread-safe.
    Objects are known by name, so each namespace needs its own Recorder. Events wake `wait_for`, which sends no
    requests.
    """

    def __init__(self, list_objects: Callable[..., Any], *args: str) -> None:
        """Start to record.

        The arguments are those of `Watch.stream`, as in `Recorder(core.list_namespaced_pod, "default")`.
        """
        self._list_objects = list_objects
        self._args = args
        # The condition guards the fields below. It is reentrant because `wait_for` calls `look` while holding it.
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
            # This is repeated because a watch that is just starting ignores the call.
            self._watch.stop()
            self._thread.join(STOP_RETRY)

    def history(self, name: str) -> list[Seen]:
        """Return all versions of the objects that have or had this name, the oldest first."""
        with self._changed:
            return list(self._seen.get(name, []))

    def latest(self, name: str) -> Any:
        """Return the object's current version, or None if the object does not exist."""
        with self._changed:
            seen = self._seen.get(name)
            return seen[-1].object if seen and seen[-1].type != DELETED else None

    def all(self) -> list[Any]:
        """Return all objects that exist now, sorted by name."""
        with self._changed:
            return [found for name in sorted(self._seen) if (found := self.latest(name)) is not None]

    def wait_for(self, what: str, look: Callable[[], R], timeout: float, describe: Callable[[], object]) -> R:
        """Return the result of `look` once it is true. Each event makes the method call `look` again.

        Raise AssertionError after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := look()):
                if (left := deadline - time.monotonic()) <= 0:
                    raise AssertionError(f"not within {timeout:g} s: {what}; last seen: {describe()}")
                self._changed.wait(left)
            return found

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow(self._catch_up())
            except (ApiException, HTTPError):
                # The server may be unreachable for as long as a test wants, or may have forgotten the version. In both
                # cases, list again.
                self._stopping.wait(RETRY)

    def _catch_up(self) -> str:
        """Record what has changed since the last watch, and return the version from which to continue."""
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
        """Record events until `stop`.

        Raise ApiException if the server has forgotten the version, and HTTPError if it is unreachable.
        """
        while not self._stopping.is_set():
            since = {"resource_version": version, "allow_watch_bookmarks": True}
            try:
                for event in self._watch.stream(self._list_objects, *self._args, **since):
                    version = event["raw_object"]["metadata"]["resourceVersion"]
                    if event["type"] != BOOKMARK:
                        self._note(event["type"], event["object"])
            except ProtocolError:
                # The connection was cut. Continue from the same version, so that no version is missed.
                continue

    def _note(self, type_: str, obj: Any) -> None:
        with self._changed:
            self._seen.setdefault(obj.metadata.name, []).append(Seen(type_, obj, time.monotonic()))
            self._changed.notify_all()
