"""Store each key in its own file.

Go: pkg/kubelet/util/store/filestore.go
"""

from __future__ import annotations

from pathlib import Path

from kubelet.util.store import store
from pkg.util import atomicfile, filesystem

_TMP_PREFIX = "."


class FileStore:
    """Store data by key in the files of a directory. Writes are atomic."""

    def __init__(self, path: str) -> None:
        """Create the directory if it is missing. Raise OSError."""
        self._directory = Path(path)
        filesystem.mkdir_all(self._directory, 0o755)

    def write(self, key: str, data: bytes) -> None:
        store.validate_key(key)
        filesystem.mkdir_all(self._directory, 0o755)
        atomicfile.write(self._directory / key, data)

    def read(self, key: str) -> bytes:
        store.validate_key(key)
        try:
            return (self._directory / key).read_bytes()
        except FileNotFoundError as err:
            raise store.ErrKeyNotFound(key) from err

    def delete(self, key: str) -> None:
        store.validate_key(key)
        (self._directory / key).unlink(missing_ok=True)

    def list(self) -> list[str]:
        return [entry.name for entry in self._directory.iterdir() if not entry.name.startswith(_TMP_PREFIX)]
