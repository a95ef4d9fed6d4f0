"""Record the writes of stores, for tests of a kubelet that dies."""

from __future__ import annotations

import pytest

from kubelet.util.store.filestore import FileStore


def record_writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list that records the content of each write of any FileStore, in order."""
    written: list[bytes] = []
    write = FileStore.write

    def record(store: FileStore, key: str, data: bytes) -> None:
        write(store, key, data)
        written.append(data)

    monkeypatch.setattr(FileStore, "write", record)
    return written
