"""Test that files are read to their end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubelet.cadvisor.cgroups import files


def test_kernel_that_gives_a_list_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cgroup.procs").write_text("1\n22\n333\n")
    read = os.read
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 3)))

    assert files.read(str(tmp_path), "cgroup.procs") == "1\n22\n333\n"
