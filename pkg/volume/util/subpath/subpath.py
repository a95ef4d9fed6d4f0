"""Sub-paths of volumes.

A container that writes to the volume may replace a directory by a link to anywhere at any time. So every component
is opened without following links, and what gets bound is the opened directory, never the path.

Go: pkg/volume/util/subpath/subpath_linux.go
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from pkg import klog, mount_utils

CONTAINER_SUB_PATH_DIRECTORY_NAME = "volume-subpaths"
_OPEN_COMPONENT = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Subpath:
    """One subPath of one mount of one container."""

    # Position among the container's mounts: part of the bind target's name.
    volume_mount_index: int
    # Full path that is to be bound, below volume_path.
    path: str
    volume_name: str
    volume_path: str
    pod_dir: str
    container_name: str


class Interface(Protocol):
    """Sub-paths of volumes. All methods raise OSError, and are safe from any thread."""

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        """Make base/sub_path with all directories it lacks, never outside of base."""
        ...

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None]]:
        """Bind the sub-path below the pod's directory; its new path, and what to call after the container's start."""
        ...

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        """Unbind all sub-paths of the volume in the pod."""
        ...


class Subpather:
    """The real one, for Linux."""

    def __init__(self, mounter: mount_utils.Interface) -> None:
        self._mounter = mounter

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        with _opened(os.path.realpath(base)) as directory:
            current = os.dup(directory)
            try:
                for component in _components(sub_path):
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(component, mode=mode, dir_fd=current)
                        os.chmod(component, mode, dir_fd=current)
                    below = os.open(component, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
                    os.close(current)
                    current = below
            finally:
                os.close(current)

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None]]:
        volume = os.path.realpath(sub_path.volume_path)
        source = os.path.realpath(sub_path.path)
        if source != volume and not source.startswith(volume.rstrip("/") + "/"):
            raise OSError(f"subpath {sub_path.path!r} not within volume path {sub_path.volume_path!r}")
        with _opened(volume) as top, _opened_below(top, os.path.relpath(source, volume)) as descriptor:
            target = _bind_target(sub_path)
            self._make_target(target, os.path.isdir(source))
            if not self._mounter.is_mount_point(target):
                klog.v(5).info_s("Bind mounting subpath", source=source, target=target)
                self._mounter.mount(f"/proc/{os.getpid()}/fd/{descriptor}", target, "", ["bind"])
        return target, lambda: None

    def _make_target(self, target: str, is_dir: bool) -> None:
        if is_dir:
            os.makedirs(target, mode=0o750, exist_ok=True)
            return
        os.makedirs(os.path.dirname(target), mode=0o750, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o640))

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        top = os.path.join(pod_dir, CONTAINER_SUB_PATH_DIRECTORY_NAME, volume_name)
        for directory, _, files in os.walk(top, topdown=False):
            for name in files:
                self._clean_one(os.path.join(directory, name), os.unlink)
            self._clean_one(directory, os.rmdir)

    def _clean_one(self, path: str, remove: Callable[[str], None]) -> None:
        if self._mounter.is_mount_point(path):
            self._mounter.unmount(path)
        remove(path)


def _bind_target(sub_path: Subpath) -> str:
    return os.path.join(
        sub_path.pod_dir,
        CONTAINER_SUB_PATH_DIRECTORY_NAME,
        sub_path.volume_name,
        sub_path.container_name,
        str(sub_path.volume_mount_index),
    )


def _components(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise OSError(f"path {path!r} must not contain '..'")
    return parts


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _opened_below(top: int, relative: str) -> Iterator[int]:
    """Open a path below an opened directory, one component at a time, none of them a link."""
    current = os.dup(top)
    try:
        for component in _components(relative):
            below = os.open(component, _OPEN_COMPONENT, dir_fd=current)
            os.close(current)
            current = below
            if stat.S_ISLNK(os.fstat(current).st_mode):
                raise OSError(f"subpath component {component!r} is a link")
        yield current
    finally:
        os.close(current)
