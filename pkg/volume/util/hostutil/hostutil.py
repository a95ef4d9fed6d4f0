"""Questions about files of the host.

Go: pkg/volume/util/hostutil/hostutil.go, hostutil_linux.go
"""

from __future__ import annotations

import enum
import os
import stat
import subprocess
from pathlib import Path
from typing import Protocol

from pkg import mount_utils


class FileType(enum.StrEnum):
    """What stands at a path, in the words of hostPath types."""

    DIRECTORY = "Directory"
    FILE = "File"
    SOCKET = "Socket"
    CHARACTER_DEVICE = "CharDevice"
    BLOCK_DEVICE = "BlockDevice"


class HostUtils(Protocol):
    """Files of the host. All methods raise OSError, and are safe from any thread."""

    def path_exists(self, path: str) -> bool: ...

    def get_file_type(self, path: str) -> FileType: ...

    def get_mode(self, path: str) -> int:
        """Permission bits, links followed."""
        ...

    def make_rshared(self, path: str) -> None:
        """Make mounts below path visible to other mount namespaces, and theirs here."""
        ...


class HostUtil:
    """The real one."""

    def path_exists(self, path: str) -> bool:
        return mount_utils.path_exists(path)

    def get_file_type(self, path: str) -> FileType:
        mode = os.stat(path).st_mode
        for test, file_type in (
            (stat.S_ISDIR, FileType.DIRECTORY),
            (stat.S_ISREG, FileType.FILE),
            (stat.S_ISSOCK, FileType.SOCKET),
            (stat.S_ISCHR, FileType.CHARACTER_DEVICE),
            (stat.S_ISBLK, FileType.BLOCK_DEVICE),
        ):
            if test(mode):
                return file_type
        raise OSError(f"only recognise file, directory, socket, block device and character device: {path}")

    def get_mode(self, path: str) -> int:
        return stat.S_IMODE(os.stat(path).st_mode)

    def make_rshared(self, path: str) -> None:
        if _is_shared(path):
            return
        for command in (["mount", "--bind", path, path], ["mount", "--make-rshared", path]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise OSError(f"failed to make {path} rshared: {' '.join(command)}: {done.stderr.strip()}")


def _is_shared(path: str) -> bool:
    """Whether the mount that path is on propagates."""
    real = os.path.realpath(path)
    best, shared = "", False
    for line in Path(mount_utils.mount.MOUNT_INFO).read_text().splitlines():
        before, _, _ = line.partition(" - ")
        fields = before.split(" ")
        point = fields[4]
        covers = real == point or real.startswith(point.rstrip("/") + "/")
        if covers and len(point) >= len(best):
            best, shared = point, any(field.startswith("shared:") for field in fields[6:])
    return shared
