"""A mounter that only keeps a list.

Go: staging/src/k8s.io/mount-utils/fake_mounter.go
"""

from __future__ import annotations

import os

from pkg.mount_utils.mount import MountPoint


class FakeMounter:
    """Remembers mounts and every call; errors maps a target to what mounting or unmounting it raises."""

    def __init__(self) -> None:
        self.mount_points: list[MountPoint] = []
        self.calls: list[tuple[str, str]] = []
        self.errors: dict[str, OSError] = {}

    def mount(self, source: str, target: str, fstype: str, options: list[str]) -> None:
        self.calls.append(("mount", target))
        if target in self.errors:
            raise self.errors[target]
        self.mount_points.append(MountPoint(source, target, fstype, tuple(options)))

    def unmount(self, target: str) -> None:
        self.calls.append(("unmount", target))
        if target in self.errors:
            raise self.errors[target]
        self.mount_points = [point for point in self.mount_points if point.path != target]

    def list(self) -> list[MountPoint]:
        return list(self.mount_points)

    def is_likely_not_mount_point(self, path: str) -> bool:
        os.lstat(path)
        return not self.is_mount_point(path)

    def is_mount_point(self, path: str) -> bool:
        return any(point.path == path for point in self.mount_points)
