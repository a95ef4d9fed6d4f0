"""Test replacing files atomically."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pkg.util import atomicfile


def test_write(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"longer than the new one")
    path.chmod(0o666)
    atomicfile.write(path, b"new", 0o640)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["file"]


def test_write_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        atomicfile.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]
