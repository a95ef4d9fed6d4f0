"""Every state that the nodes of an API server ever had, in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from framework.apiserver.interfaces import Object, Store


class NodeHistory:
    """Records the nodes of a store from when it is made until it is stopped; what somebody has seen in the store before
    asking is always known here, too. Use it from any thread.
    """

    def __init__(self, store: Store) -> None:
        self._watch = store.watch("nodes")
        # Guards the versions, and the watch.
        self._lock = threading.Lock()
        self._versions: dict[str, list[Object]] = {}

    def stop(self) -> None:
        with self._caught_up():
            self._watch.stop()

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Hold the lock, with all that has happened recorded."""
        with self._lock:
            for event in self._watch.pending():
                self._versions.setdefault(event.object["metadata"]["name"], []).append(event.object)
            yield

    def of(self, name: str) -> list[Object]:
        """The versions of a node."""
        with self._caught_up():
            return list(self._versions.get(name, []))

    def conditions(self, name: str, kind: str) -> list[dict[str, Any]]:
        """What a condition of a node has been, each time that it changed."""
        found: list[dict[str, Any]] = []
        for version in self.of(name):
            for each in (version.get("status") or {}).get("conditions") or []:
                if each["type"] == kind and (not found or each["status"] != found[-1]["status"]):
                    found.append(each)
        return found

    def taints(self, name: str) -> set[str]:
        """The keys of all taints that a node ever had."""
        return {each["key"] for version in self.of(name) for each in version["spec"].get("taints") or []}
