"""Hold the drivers that are registered on this node.

Go: pkg/volume/csi/csi_drivers_store.go
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from pkg.apimachinery.util.version import Version


@dataclass(frozen=True, slots=True)
class Driver:
    """Describe a driver by the path of its unix socket and the highest CSI version that it supports."""

    endpoint: str
    highest_supported_version: Version


class DriversStore:
    """Hold drivers by name. Every method is safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # This lock guards `_store`.
        self._store: dict[str, Driver] = {}

    def get(self, driver_name: str) -> Driver | None:
        with self._lock:
            return self._store.get(driver_name)

    def set(self, driver_name: str, driver: Driver) -> None:
        with self._lock:
            self._store[driver_name] = driver

    def delete(self, driver_name: str) -> None:
        with self._lock:
            self._store.pop(driver_name, None)

    def clear(self) -> None:
        with self._lock:
            self._store.clear()
