"""Says an error once a while instead of each time it is met.

Go: k8s.io/component-base/logs/logreduction/logreduction.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic


class LogReduction:
    """Passes a message that is new for its id, or was last passed `identical_error_delay` seconds ago.

    Safe from any thread.
    """

    def __init__(self, identical_error_delay: float, now: Callable[[], float] = monotonic) -> None:
        self._delay = identical_error_delay
        self._now = now
        self._lock = threading.Lock()  # guards _printed
        self._printed: dict[str, tuple[str, float]] = {}  # parent id → message, when passed

    def should_message_be_printed(self, message: str, parent_id: str) -> bool:
        """Whether to log; if so, the message counts as logged now."""
        with self._lock:
            now = self._now()
            self._forget_old_locked(now)
            known = self._printed.get(parent_id)
            if known is not None and known[0] == message:
                return False
            self._printed[parent_id] = (message, now)
            return True

    def clear_id(self, parent_id: str) -> None:
        """The next message of this id is passed: it has recovered, or is gone."""
        with self._lock:
            self._printed.pop(parent_id, None)

    def _forget_old_locked(self, now: float) -> None:
        for parent_id, (_, printed) in list(self._printed.items()):
            if now - printed >= self._delay:
                del self._printed[parent_id]
