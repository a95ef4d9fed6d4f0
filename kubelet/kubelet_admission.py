"""Track the pods that wait for a decision about their admission.

Go has no counterpart: the Go kubelet rejects a pod permanently if it cannot admit the pod at once.
"""

from __future__ import annotations

import threading

from pkg.apimachinery import types


class WaitingPods:
    """Hold the waiting pods by UID, with the reasons for which they wait. All methods are thread-safe."""

    def __init__(self) -> None:
        # Hold this lock while a waiting pod is admitted, so that the next decision counts the pod. Acquire it before
        # all other locks.
        self.admission_lock = threading.Lock()
        self._lock = threading.Lock()  # The lock guards `_reasons`.
        self._reasons: dict[types.UID, str] = {}

    def note(self, uid: types.UID, reason: str) -> bool:
        """Record that the pod waits; return whether this or the reason is new."""
        with self._lock:
            new = self._reasons.get(uid) != reason
            self._reasons[uid] = reason
            return new

    def discard(self, uid: types.UID) -> None:
        """Record that the pod does not wait, or no longer waits."""
        with self._lock:
            self._reasons.pop(uid, None)

    def __contains__(self, uid: str) -> bool:
        with self._lock:
            return uid in self._reasons
