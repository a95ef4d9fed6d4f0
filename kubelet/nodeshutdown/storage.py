"""Store the state of the last graceful shutdown.

Go: pkg/kubelet/nodeshutdown/storage.go
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pkg.apimachinery.runtime import codec
from pkg.util import atomicfile

# Go writes this value for a time that is not set.
ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


class State(msgspec.Struct, rename="camel"):
    """Record when the last graceful shutdown began and ended, with ZERO_TIME if it did not."""

    start_time: datetime = ZERO_TIME
    end_time: datetime = ZERO_TIME


class LocalStorage:
    """Keep the state in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self, state: State) -> None:
        """Replace the file atomically. Raise OSError."""
        atomicfile.write(self._path, msgspec.json.encode(state), 0o644)

    def load(self) -> State:
        """Return the stored state, or an empty one. Raise OSError, and ValueError if the file is malformed."""
        try:
            return codec.json_decoder(State).decode(self._path.read_bytes())
        except FileNotFoundError:
            return State()


def timestamp(moment: datetime) -> float:
    """Return seconds since 1970, or 0 if the time is not set."""
    return 0.0 if moment == ZERO_TIME else float(int(moment.timestamp()))
