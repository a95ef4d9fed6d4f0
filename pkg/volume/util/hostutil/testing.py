"""A host whose files are made up.

Go: pkg/volume/util/hostutil/fake_hostutil.go
"""

from __future__ import annotations

from pkg.volume.util.hostutil.hostutil import FileType, HostUtil


class FakeHostUtil(HostUtil):
    """The real file system, but for paths in `types`, and without mounts."""

    def __init__(self, types: dict[str, FileType] | None = None) -> None:
        self.types = types or {}
        self.rshared: list[str] = []

    def path_exists(self, path: str) -> bool:
        return path in self.types or super().path_exists(path)

    def get_file_type(self, path: str) -> FileType:
        return self.types[path] if path in self.types else super().get_file_type(path)

    def make_rshared(self, path: str) -> None:
        self.rshared.append(path)
