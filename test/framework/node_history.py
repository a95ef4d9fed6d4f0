"""Every state that the nodes of an API server ever had, in order."""

from __future__ import annotations

import threading
from typing import Any

from framework.apiserver.interfaces import Object, Store
from pkg import golang


class NodeHistory:
    """Records the nodes of a store from when it is made until it is stopped. Use it from any thread."""

    def __init__(self, store: Store) -> None:
        self._watch = store.watch("nodes")
        # Guards the versions.
        self._lock = threading.Lock()
        self._versions: dict[str, list[Object]] = {}
        self._thread = golang.go(self._record, name="node-history")

    def stop(self) -> None:
        self._watch.stop()
        self._thread.join()

    def _record(self) -> None:
        for event in self._watch:
            with self._lock:
                self._versions.setdefault(event.object["metadata"]["name"], []).append(event.object)

    def of(self, name: str) -> list[Object]:
        """The versions of a node."""
        with self._lock:
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
