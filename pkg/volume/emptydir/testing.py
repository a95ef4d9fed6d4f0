"""Provide a fake mount detector."""

from __future__ import annotations

from pkg.apimachinery.api.resource import parse_quantity
from pkg.volume.emptydir import empty_dir


class FakeMountDetector:
    """Return the same medium for every directory."""

    def __init__(self, medium: str, is_mount_point: bool, page_size: str = "") -> None:
        size = parse_quantity(page_size) if page_size else None
        self.found = empty_dir.MountMedium(medium, is_mount_point, size)

    def get_mount_medium(self, path: str, requested_medium: str) -> empty_dir.MountMedium:
        return self.found
