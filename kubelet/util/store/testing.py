"""What a store writes, for tests of what a kubelet that dies leaves behind."""

from __future__ import annotations

import pytest

from kubelet.util.store.filestore import FileStore


def record_writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each content that any FileStore writes from now on, in order."""
    written: list[bytes] = []
    write = FileStore.write

    def record(store: FileStore, key: str, data: bytes) -> None:
        write(store, key, data)
        written.append(data)

    monkeypatch.setattr(FileStore, "write", record)
    return written
