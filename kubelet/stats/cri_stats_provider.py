"""Figures that the container runtime knows.

Go: pkg/kubelet/stats/cri_stats_provider.go
"""

from __future__ import annotations

import os

from cri_api.v1 import api_pb2 as runtimeapi

from kubelet.cri import apis as internalapi
from kubelet.images import image_gc_manager as images
from pkg import golang


class CRIStatsProvider:
    """Asks the runtime at each call; safe from any thread."""

    def __init__(self, image_service: internalapi.ImageManagerService) -> None:
        self._image_service = image_service

    def image_fs_stats(self, ctx: golang.Context) -> tuple[images.FsStats, images.FsStats]:
        """The file systems of images and of containers' writable layers.

        Raises OSError when one cannot be looked at, ValueError when the runtime names none.
        """
        response = self._image_service.image_fs_info(ctx)
        if not response.image_filesystems:
            raise ValueError("imageFs information is unavailable")
        image = _fs_stats(response.image_filesystems[0])
        containers = response.container_filesystems
        return image, _fs_stats(containers[0]) if containers else image


def _fs_stats(usage: runtimeapi.FilesystemUsage) -> images.FsStats:
    """What the runtime uses of a file system, with what the whole of it has."""
    disk = os.statvfs(usage.fs_id.mountpoint)
    return images.FsStats(available_bytes=disk.f_bavail * disk.f_frsize, capacity_bytes=disk.f_blocks * disk.f_frsize)
