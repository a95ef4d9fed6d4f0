"""Create disks that are backed by files."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def loop_device(disk: Path) -> Iterator[str]:
    """Attach a loop device to the file and yield its path; detach it at the end. This needs root."""
    run = ["losetup", "--find", "--show", str(disk)]
    device = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


def can_make_ext4() -> bool:
    return shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None


def mount_small_disk(disk: Path, mebibytes: int, place: Path, inodes: int | None = None) -> None:
    """Mount a new ext4 file system of this size. Unmounting it frees its loop device, too. This needs root."""
    with disk.open("wb") as file:
        file.truncate(mebibytes << 20)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    # No blocks are reserved for root.
    make = [shutil.which("mkfs.ext4", path=path) or "mkfs.ext4", "-q", "-m", "0"]
    if inodes is not None:
        make += ["-N", str(inodes)]
    subprocess.run([*make, str(disk)], check=True)
    place.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(disk), str(place)], check=True)
