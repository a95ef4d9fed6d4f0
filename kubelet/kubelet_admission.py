"""Pods that are asked to wait before they are admitted.

Go has none: it turns away for good what it cannot admit at once.
"""

from __future__ import annotations

import threading

from pkg.apimachinery import types


class WaitingPods:
    """Pods by their uids, with what they wait for. Thread-safe."""

    def __init__(self) -> None:
        # Held while one of them is admitted, so that it counts for the next. Taken before all other locks.
        self.admission_lock = threading.Lock()
        self._lock = threading.Lock()  # guards _reasons
        self._reasons: dict[types.UID, str] = {}

    def note(self, uid: types.UID, reason: str) -> bool:
        """The pod waits; returns whether that, or the reason, is new."""
        with self._lock:
            new = self._reasons.get(uid) != reason
            self._reasons[uid] = reason
            return new

    def discard(self, uid: types.UID) -> None:
        """The pod does not wait any more, or never did."""
        with self._lock:
            self._reasons.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        with self._lock:
            return uid in self._reasons
