"""Provide sub-paths without bind mounts.

Go: pkg/volume/util/subpath/subpath_unsupported.go
"""

from __future__ import annotations

import os
from collections.abc import Callable

from pkg.util import filesystem
from pkg.volume.util.subpath.subpath import Subpath


class FakeSubpather:
    """Return every sub-path as it is, and record the calls."""

    def __init__(self) -> None:
        self.prepared: list[Subpath] = []
        self.cleaned: list[tuple[str, str]] = []

    def safe_make_dir(self, sub_path: str, base: str, mode: int) -> None:
        filesystem.mkdir_all(os.path.join(base, sub_path), mode)

    def prepare_safe_subpath(self, sub_path: Subpath) -> tuple[str, Callable[[], None]]:
        self.prepared.append(sub_path)
        return sub_path.path, lambda: None

    def clean_subpaths(self, pod_dir: str, volume_name: str) -> None:
        self.cleaned.append((pod_dir, volume_name))
