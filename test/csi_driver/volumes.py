"""Operate on volumes. Every operation can be repeated, after success and after a kill in the middle.

The driver creates a volume at its first use. The volume's directory has `data`, or `disk` for a block device, and
`size`. The driver reads the mounts from the kernel every time, because the driver may have been killed before.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

DEFAULT_SIZE = 16 << 20
Step = Callable[[], None]


class VolumeError(Exception):
    """Signal that an operation is refused. `code` is the name of a gRPC status."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Usage:
    """Describe the usage of a volume in bytes or in inodes."""

    total: int
    used: int

    @property
    def available(self) -> int:
        return max(self.total - self.used, 0)


class Volumes:
    """Operate on volumes. All methods are thread-safe. Each operation calls `half` when it is half done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._busy: set[str] = set()
        # The lock guards _busy.
        self._lock = threading.Lock()

    @contextmanager
    def alone(self, volume: str) -> Iterator[None]:
        """Refuse other operations on the volume within a `with` block."""
        with self._lock:
            if volume in self._busy:
                raise VolumeError("ABORTED", f"an operation on volume {volume} is already in progress")
            self._busy.add(volume)
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard(volume)

    def stage(self, volume: str, target: Path, block: bool, half: Step) -> None:
        """Mount the volume at an existing directory, or attach a loop device for it."""
        source = self._make(volume, block)
        half()
        if block:
            if not _device(source):
                _run("losetup", "--find", source)
        elif not is_mounted(target):
            _run("mount", "--bind", source, target)

    def unstage(self, volume: str, target: Path, half: Step) -> None:
        if is_mounted(target):
            _run("umount", target)
        half()
        disk = self._directory / volume / "disk"
        if device := disk.exists() and _device(disk):
            _run("losetup", "--detach", device)

    def is_staged(self, volume: str, staging: Path, block: bool) -> bool:
        return bool(_device(self._directory / volume / "disk")) if block else is_mounted(staging)

    def publish(self, volume: str, source: Path | None, target: Path, read_only: bool, block: bool, half: Step) -> None:
        """Mount a volume at a target, which the method creates.

        The source is the staged volume, or the volume itself if it is not staged.
        """
        if block:
            found = _device(self._make(volume, block))
            target.touch()
        else:
            found = str(source or self._make(volume, block))
            target.mkdir(exist_ok=True)
        half()
        if is_mounted(target):
            return
        _run("mount", "--bind", found, target)
        if read_only and not block:
            _run("mount", "-o", "remount,bind,ro", target)

    def unpublish(self, target: Path, half: Step) -> None:
        if is_mounted(target):
            _run("umount", target)
        half()
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink(missing_ok=True)

    def mark_ephemeral(self, volume: str) -> None:
        """Mark the volume, so that it is deleted when it is unpublished."""
        folder = self._directory / volume
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ephemeral").touch()

    def remove_if_ephemeral(self, volume: str) -> None:
        if (self._directory / volume / "ephemeral").exists():
            shutil.rmtree(self._directory / volume)

    def complaint(self, volume: str) -> str:
        """Return the problem that a test has written to the volume's file `abnormal`."""
        path = self._directory / volume / "abnormal"
        return path.read_text() if path.exists() else ""

    def expand(self, volume: str, size: int) -> int:
        """Expand a volume, and return its size. Raise VolumeError if it does not exist."""
        folder = self._existing(volume)
        if size > self.size(volume):
            disk = folder / "disk"
            if disk.exists():
                os.truncate(disk, size)
                if device := _device(disk):
                    _run("losetup", "--set-capacity", device)
            (folder / "size").write_text(str(size))
        return self.size(volume)

    def size(self, volume: str) -> int:
        return int((self._existing(volume) / "size").read_text())

    def usage(self, volume: str) -> tuple[Usage, Usage]:
        """Return the volume's usage in bytes and in inodes."""
        data = self._existing(volume) / "data"
        files = [path for path in data.rglob("*") if path.is_file()]
        used = sum(path.stat().st_size for path in files)
        return Usage(self.size(volume), used), Usage(1000, len(files))

    def _existing(self, volume: str) -> Path:
        folder = self._directory / volume
        if not (folder / "size").exists():
            raise VolumeError("NOT_FOUND", f"volume {volume} does not exist")
        return folder

    def _make(self, volume: str, block: bool) -> Path:
        folder = self._directory / volume
        source = folder / ("disk" if block else "data")
        if block:
            folder.mkdir(parents=True, exist_ok=True)
            if not source.exists():
                source.touch()
                os.truncate(source, DEFAULT_SIZE)
        else:
            source.mkdir(parents=True, exist_ok=True)
        if not (folder / "size").exists():
            (folder / "size").write_text(str(DEFAULT_SIZE))
        return source


def is_mounted(target: Path) -> bool:
    return str(target) in mount_points()


def mount_points() -> list[str]:
    """Return all mount points, once for each mount."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        return [_unescape(line.split(" ")[4]) for line in lines]


def _unescape(path: str) -> str:
    for escaped, char in ((r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", "\\")):
        path = path.replace(escaped, char)
    return path


def _device(disk: Path) -> str:
    """Return the loop device of a file, or "" if it has none."""
    return _run("losetup", "--associated", disk, "--output", "NAME", "--noheadings").strip()


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise VolumeError("INTERNAL", f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout
