"""Bearer tokens that somebody renews in a file.

Go: k8s.io/client-go/transport/token_source.go
"""

from __future__ import annotations

import threading
from pathlib import Path

from pkg import klog
from pkg.apimachinery import clock as clock_

# Seconds after which the file is read again, also while it cannot be read.
_PERIOD = 60.0


class CachingTokenSource:
    """Safe from any thread."""

    def __init__(self, path: str, token: str = "", clock: clock_.Clock | None = None) -> None:
        """`token` serves until the file could be read for the first time."""
        self._path = path
        self._clock = clock or clock_.RealClock()
        self._lock = threading.Lock()  # guards the rest
        self._token = token
        self._read_at: float | None = None

    def token(self) -> str:
        """The present token; the last one that could be read if the file cannot be read now.

        Raises OSError or ValueError, naming the file, if there never was one.
        """
        with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= _PERIOD:
                self._read_locked()
                self._read_at = now
            return self._token

    def reset(self, refused: str) -> None:
        """The server refused this token: read the file at the next call, unless that has happened since."""
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
