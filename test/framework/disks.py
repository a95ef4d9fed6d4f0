"""Files of the machine as disks."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def loop_device(disk: Path) -> Iterator[str]:
    """The device that has the file's content. Takes root."""
    run = ["losetup", "--find", "--show", str(disk)]
    device = subprocess.run(run, check=True, capture_output=True, text=True).stdout.strip()
    yield device
    subprocess.run(["losetup", "--detach", device], check=True)


def can_make_ext4() -> bool:
    return shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is not None
