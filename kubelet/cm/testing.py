"""A directory that behaves as the kernel's cgroup file systems do, and a systemd that remembers what it was asked."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kubelet.cm.systemd import Property

V1_FILES = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "cpuacct": {},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "memory": {"memory.limit_in_bytes": "9223372036854771712"},
    "pids": {"pids.max": "max"},
    "hugetlb": {
        **{f"hugetlb.2MB{kind}.limit_in_bytes": "9223372036854771712" for kind in ("", ".rsvd")},
        "hugetlb.1GB.limit_in_bytes": "0",
    },
    "devices": {},
    "freezer": {},
}
V2_FILES = {
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000"},
    "memory": {"memory.max": "max", "memory.min": "0", "memory.low": "0"},
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
                self._make(root / controller)
            self.write("cpuset/cpuset.cpus", "0-1")
            self.write("cpuset/cpuset.mems", "0")
        else:
            self.write("cgroup.controllers", "cpu memory pids rdma")
            self.write("cgroup.subtree_control", "")

    def mount_info(self, options: str = "rw") -> str:
        """The hierarchies as the kernel lists mounts."""
        if self.version == 2:
            return f"31 23 0:28 / {self.root} {options},nosuid - cgroup2 cgroup2 rw\n"
        return "".join(
            f"{n} 31 0:{n} / {self.root}/{controller} {options},relatime - cgroup cgroup rw,{controller}\n"
            for n, controller in enumerate(V1_FILES, 32)
        )

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

    def _remove(self, path: str | Path, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            self._rmdir(path, dir_fd=dir_fd)
            return
        if left := self.busy.get(str(path), 0):
            self.busy[str(path)] = left - 1
            raise OSError(errno.EBUSY, "device or resource busy", str(path))
        if self.root in Path(path).parents:
            for file in Path(path).iterdir():
                if file.is_file():
                    file.unlink()
        self._rmdir(path)


class FakeSystemd:
    """Knows the slices that it was asked for, and their properties."""

    def __init__(self, version: int = 252) -> None:
        self.slices: dict[str, dict[str, Any]] = {}
        # In the order of calls: the method, and the unit.
        self.calls: list[tuple[str, str]] = []
        self._version = version

    def version(self) -> int:
        return self._version

    def start_slice(self, unit: str, properties: Sequence[Property]) -> None:
        self.calls.append(("start", unit))
        self._set(self.slices.setdefault(unit, {}), properties)

    def set_unit_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self.calls.append(("set", unit))
        self._set(self.slices[unit], properties)

    def stop_unit(self, unit: str) -> None:
        self.calls.append(("stop", unit))
        self.slices.pop(unit, None)

    def _set(self, known: dict[str, Any], properties: Sequence[Property]) -> None:
        known |= {name: value for name, (_signature, value) in properties}
