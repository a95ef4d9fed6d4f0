"""Provide a host with fake files.

Go: pkg/volume/util/hostutil/fake_hostutil.go
"""

from __future__ import annotations

from pkg.volume.util.hostutil.hostutil import FileType, HostUtil


class FakeHostUtil(HostUtil):
    """Examine the real file system, except for the paths in `types`, and know no mounts."""

    def __init__(self, types: dict[str, FileType] | None = None) -> None:
        self.types = types or {}
        self.rshared: list[str] = []
        self.opened_devices: set[str] = set()
        self.selinux_mount_contexts: dict[str, str] = {}

    def path_exists(self, path: str) -> bool:
        return path in self.types or super().path_exists(path)

    def get_file_type(self, path: str) -> FileType:
        return self.types[path] if path in self.types else super().get_file_type(path)

    def device_opened(self, path: str) -> bool:
        return path in self.opened_devices

    def path_is_device(self, path: str) -> bool:
        return True

    def get_selinux_support(self, path: str) -> bool:
        return False

    def get_selinux_mount_context(self, path: str) -> str:
        return self.selinux_mount_contexts.get(path, "")

    def make_rshared(self, path: str) -> None:
        self.rshared.append(path)
