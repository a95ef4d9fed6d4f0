"""Record every state of an API server's nodes in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from framework.apiserver.interfaces import Object, Store


class NodeHistory:
    """Record the nodes of a store from now on until `stop`. All methods are thread-safe.

    The record contains everything that the caller has already seen in the store.
    """

    def __init__(self, store: Store) -> None:
        self._watch = store.watch("nodes")
        # The lock guards the versions and the watch.
        self._lock = threading.Lock()
        self._versions: dict[str, list[Object]] = {}

    def stop(self) -> None:
        with self._caught_up():
            self._watch.stop()

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, after all past events have been recorded."""
        with self._lock:
            for event in self._watch.pending():
                self._versions.setdefault(event.object["metadata"]["name"], []).append(event.object)
            yield

    def of(self, name: str) -> list[Object]:
        """Return the versions of a node."""
        with self._caught_up():
            return list(self._versions.get(name, []))

    def conditions(self, name: str, kind: str) -> list[dict[str, Any]]:
        """Return a condition of a node as it was after each change of its status."""
        found: list[dict[str, Any]] = []
        for version in self.of(name):
            for each in (version.get("status") or {}).get("conditions") or []:
                if each["type"] == kind and (not found or each["status"] != found[-1]["status"]):
                    found.append(each)
        return found

    def taints(self, name: str) -> set[str]:
        """Return the keys of all taints that a node ever had."""
        return {each["key"] for version in self.of(name) for each in version["spec"].get("taints") or []}
