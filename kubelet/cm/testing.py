"""A directory that behaves as the kernel's cgroup file systems do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

V1_FILES = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "cpuacct": {},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
    "pids": {"pids.max": "max"},
    "hugetlb": {"hugetlb.2MB.limit_in_bytes": "9223372036854771712", "hugetlb.1GB.limit_in_bytes": "0"},
    "devices": {},
    "freezer": {},
}
V2_FILES = {
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000"},
    "memory": {"memory.max": "max"},
    "pids": {"pids.max": "max"},
}


class FakeCgroupfs:
    """New directories below root get the files their hierarchy has, and go away with them unless they are busy."""

    def __init__(self, root: Path, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.version = version
        # How often the removal of a directory still fails, as it does while processes are dying.
        self.busy: dict[str, int] = {}
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        monkeypatch.setattr(os, "mkdir", self._make)
        monkeypatch.setattr(os, "rmdir", self._remove)
        if version == 1:
            for controller in V1_FILES:
                os.mkdir(root / controller)
            self.write("cpuset/cpuset.cpus", "0-1")
            self.write("cpuset/cpuset.mems", "0")
        else:
            self.write("cgroup.controllers", "cpu memory pids rdma")
            self.write("cgroup.subtree_control", "")

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def write(self, path: str, text: str) -> None:
        (self.root / path).write_text(text)

    def directories(self) -> list[str]:
        """All cgroups, relative to the root."""
        found = (Path(directory).relative_to(self.root) for directory, _, _ in os.walk(self.root))
        return sorted(str(directory) for directory in found)

    def _make(self, path: str | Path, mode: int = 0o777) -> None:
        self._mkdir(path, mode)
        if self.root not in Path(path).parents:
            return
        directory = Path(path)
        if self.version == 1:
            files = V1_FILES.get(directory.relative_to(self.root).parts[0], {})
        else:
            # Controllers are in force where the parent has enabled them.
            enabled = [word[1:] for word in (directory.parent / "cgroup.subtree_control").read_text().split()]
            files = {"cgroup.controllers": " ".join(enabled), "cgroup.subtree_control": ""}
            files |= {name: text for c in enabled for name, text in V2_FILES.get(c, {}).items()}
        for name, text in {"cgroup.procs": "", **files}.items():
            (directory / name).write_text(text)

    def _remove(self, path: str | Path) -> None:
        if left := self.busy.get(str(path), 0):
            self.busy[str(path)] = left - 1
            raise OSError(errno.EBUSY, "device or resource busy", str(path))
        if self.root in Path(path).parents:
            for file in Path(path).iterdir():
                if file.is_file():
                    file.unlink()
        self._rmdir(path)
