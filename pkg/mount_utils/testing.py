"""Fake a mounter with a list in memory.

Go: k8s.io/mount-utils/fake_mounter.go
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable

from pkg.mount_utils.mount import MountPoint, get_mount_refs_by_dev


class FakeMounter:
    """Record mounts and every call. `errors` maps a target to the error of mounting or unmounting it."""

    def __init__(self, mount_points: Iterable[MountPoint] = (), skip_mount_point_check: bool = False) -> None:
        self.mount_points = [*mount_points]
        self.calls: list[tuple[str, str]] = []
        # `mounts` holds source, target, type and options of every mount, as the caller passed them.
        self.mounts: list[tuple[str, str, str, list[str]]] = []
        self.errors: dict[str, OSError] = {}
        # `mount_check_errors` holds the errors of checks whether a path is a mount point.
        self.mount_check_errors: dict[str, OSError] = {}
        self.unmount_func: Callable[[str], None] | None = None
        self._skip_mount_point_check = skip_mount_point_check
        # The lock guards mount_points and calls.
        self._lock = threading.Lock()

    def reset_log(self) -> None:
        self.calls.clear()
        self.mounts.clear()

    def get_log(self) -> list[tuple[str, str]]:
        """Return ("mount" or "unmount", target) for each call, in order."""
        return list(self.calls)

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        self.mount_sensitive(source, target, fstype, options, [])

    def mount_sensitive(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        with self._lock:
            self.calls.append(("mount", target))
            self.mounts.append((source, target, fstype, [*options, *sensitive_options]))
            if target in self.errors:
                raise self.errors[target]
            if "bind" in options:
                # Like the kernel, record the device and not the source of the bind mount.
                source = next((point.device for point in self.mount_points if point.path == source), source)
            point = MountPoint(source, os.path.realpath(target), fstype, (*options, *sensitive_options))
            self.mount_points.append(point)

    def mount_sensitive_without_systemd(
        self, source: str, target: str, fstype: str, options: list[str], sensitive_options: list[str]
    ) -> None:
        self.mount_sensitive(source, target, fstype, options, sensitive_options)

    def mount_sensitive_without_systemd_with_mount_flags(
        self,
        source: str,
        target: str,
        fstype: str,
        options: list[str],
        sensitive_options: list[str],
        mount_flags: list[str],
    ) -> None:
        self.mount_sensitive(source, target, fstype, options, sensitive_options)

    def unmount(self, target: str) -> None:
        with self._lock:
            self.calls.append(("unmount", target))
            if target in self.errors:
                raise self.errors[target]
            real = os.path.realpath(target)
            if self.unmount_func is not None and any(point.path == real for point in self.mount_points):
                self.unmount_func(real)
            self.mount_points = [point for point in self.mount_points if point.path != real]
            self.mount_check_errors.pop(target, None)

    def unmount_with_force(self, target: str, umount_timeout: float) -> None:
        self.unmount(target)

    def is_likely_not_mount_point(self, path: str) -> bool:
        if path in self.mount_check_errors:
            raise self.mount_check_errors[path]
        os.stat(path)
        real = os.path.realpath(path)
        return all(point.path != real for point in self.list())

    def can_safely_skip_mount_point_check(self) -> bool:
        return self._skip_mount_point_check

    def is_mount_point(self, path: str) -> bool:
        return not self.is_likely_not_mount_point(path)

    def get_mount_refs(self, path: str) -> list[str]:
        return get_mount_refs_by_dev(self, os.path.realpath(path))

    def list(self) -> list[MountPoint]:
        with self._lock:
            return [*self.mount_points]
