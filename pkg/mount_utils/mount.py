"""Mounts, made with mount(8) so that its helpers and /etc/mtab customs apply.

Go: staging/src/k8s.io/mount-utils/mount.go, mount_linux.go
"""

from __future__ import annotations

import enum
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pkg import klog

MOUNT_INFO = "/proc/self/mountinfo"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MountPoint:
    """One line of mountinfo."""

    device: str
    path: str
    type: str
    options: tuple[str, ...]


class MountErrorType(enum.StrEnum):
    """Why a device could not be mounted."""

    FILESYSTEM_MISMATCH = "FilesystemMismatch"
    HAS_FILESYSTEM_ERRORS = "HasFilesystemErrors"
    UNFORMATTED_READ_ONLY = "UnformattedReadOnly"
    FORMAT_FAILED = "FormatFailed"
    GET_DISK_FORMAT_FAILED = "GetDiskFormatFailed"
    UNKNOWN_MOUNT_ERROR = "UnknownMountError"


class MountError(OSError):
    """A device could not be formatted or mounted."""

    def __init__(self, type: MountErrorType, message: str) -> None:
        super().__init__(message)
        self.type = type


class Interface(Protocol):
    """Mounts of this machine. All methods raise OSError, and are safe from any thread."""

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None: ...

    def unmount(self, target: str) -> None: ...

    def list(self) -> list[MountPoint]: ...

    def is_likely_not_mount_point(self, path: str) -> bool:
        """Quick, and wrong for bind mounts within one filesystem. Raises FileNotFoundError."""
        ...

    def is_mount_point(self, path: str) -> bool:
        """Right for bind mounts too. Raises FileNotFoundError."""
        ...


class Mounter:
    """The real one."""

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        arguments = ["-t", fstype] if fstype else []
        if options:
            arguments += ["-o", ",".join(options)]
        _run(["mount", "--no-canonicalize", *arguments, source, target])

    def unmount(self, target: str) -> None:
        klog.v(4).info_s("Unmounting", path=target)
        _run(["umount", target])

    def list(self) -> list[MountPoint]:
        return parse_mount_info(Path(MOUNT_INFO).read_text())

    def is_likely_not_mount_point(self, path: str) -> bool:
        return os.lstat(path).st_dev == os.stat(os.path.dirname(path.rstrip("/")) or "/").st_dev

    def is_mount_point(self, path: str) -> bool:
        if not self.is_likely_not_mount_point(path):
            return True
        real = os.path.realpath(path)
        return any(point.path == real for point in self.list())


def parse_mount_info(text: str) -> list[MountPoint]:
    """The mounts in the text of a mountinfo file, in its order."""
    points = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        points.append(
            MountPoint(
                device=_unescape(tail[1]),
                path=_unescape(fields[4]),
                type=tail[0],
                options=tuple(fields[5].split(",")),
            )
        )
    return points


def path_exists(path: str) -> bool:
    """Whether something stands at path, a dangling link too. Raises OSError when that cannot be told."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
