"""Read bearer tokens from a file that another program renews.

Go: k8s.io/client-go/transport/token_source.go
"""

from __future__ import annotations

import threading
from pathlib import Path

from pkg import klog
from pkg.apimachinery import clock as clock_

# `_PERIOD` is the interval, in seconds, after which the file is read again, also while it cannot be read.
_PERIOD = 60.0


class CachingTokenSource:
    """Cache the token in a file.

    All methods are thread-safe.
    """

    def __init__(self, path: str, token: str = "", clock: clock_.Clock | None = None) -> None:
        """Prepare the source; `token` is used until the file has been read for the first time."""
        self._path = path
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._token = token
        self._read_at: float | None = None

    def token(self) -> str:
        """Return the current token, or the last one if the file cannot be read now.

        Raise OSError or ValueError that names the file if no token was ever read.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= _PERIOD:
                self._read_locked()
                self._read_at = now
            return self._token

    def reset(self, refused: str) -> None:
        """Read the file again at the next call, unless it was read since the server refused this token."""
        with self._lock:
            if self._token == refused:
                self._read_at = None

    def _read_locked(self) -> None:
        try:
            token = Path(self._path).read_text(encoding="utf-8").strip()
            if not token:
                raise ValueError(f'read empty token from file "{self._path}"')
        except (OSError, ValueError) as err:
            if not self._token:
                raise
            klog.error_s(err, "Unable to rotate token")
            return
        self._token = token
