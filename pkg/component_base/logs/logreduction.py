"""Log a repeated error only now and then, and not each time it occurs.

Go: k8s.io/component-base/logs/logreduction/logreduction.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic


class LogReduction:
    """Decide which messages to log.

    All methods are thread-safe. A message is logged if it is new for its ID, or was last logged at least
    `identical_error_delay` seconds ago.
    """

    def __init__(self, identical_error_delay: float, now: Callable[[], float] = monotonic) -> None:
        self._delay = identical_error_delay
        self._now = now
        self._lock = threading.Lock()  # The lock guards _printed.
        # `_printed` maps a parent ID to its last message and the time of logging.
        self._printed: dict[str, tuple[str, float]] = {}

    def should_message_be_printed(self, message: str, parent_id: str) -> bool:
        """Report whether to log the message; if so, it counts as logged now."""
        with self._lock:
            now = self._now()
            self._forget_old_locked(now)
            known = self._printed.get(parent_id)
            if known is not None and known[0] == message:
                return False
            self._printed[parent_id] = (message, now)
            return True

    def clear_id(self, parent_id: str) -> None:
        """Forget the last message of this ID, so that the next one is logged.

        Callers do so when the subject has recovered or is gone.
        """
        with self._lock:
            self._printed.pop(parent_id, None)

    def _forget_old_locked(self, now: float) -> None:
        for parent_id, (_, printed) in list(self._printed.items()):
            if now - printed >= self._delay:
                del self._printed[parent_id]
