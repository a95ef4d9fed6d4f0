"""Tests of the figures that the runtime knows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import stats
from kubelet.cri.testing import FakeImageService
from pkg import golang

CTX = golang.background()


class ImageService(FakeImageService):
    """Names the file systems it is given."""

    response = runtimeapi.ImageFsInfoResponse()

    def image_fs_info(self, ctx: golang.Context) -> runtimeapi.ImageFsInfoResponse:
        return self.response


def usage(path: Path | str) -> runtimeapi.FilesystemUsage:
    return runtimeapi.FilesystemUsage(fs_id=runtimeapi.FilesystemIdentifier(mountpoint=str(path)))


def test_image_fs_stats(tmp_path: Path) -> None:
    service = ImageService()
    service.response = runtimeapi.ImageFsInfoResponse(image_filesystems=[usage(tmp_path)])
    image, containers = stats.CRIStatsProvider(service).image_fs_stats(CTX)
    disk = os.statvfs(tmp_path)
    assert image.capacity_bytes is not None
    assert image.capacity_bytes == disk.f_blocks * disk.f_frsize
    assert image.available_bytes is not None
    assert 0 < image.available_bytes <= image.capacity_bytes
    assert containers == image, "one file system for both"


def test_containers_on_a_file_system_of_their_own(tmp_path: Path) -> None:
    service = ImageService()
    service.response = runtimeapi.ImageFsInfoResponse(
        image_filesystems=[usage(tmp_path)], container_filesystems=[usage("/proc")]
    )
    _, containers = stats.CRIStatsProvider(service).image_fs_stats(CTX)
    assert containers.capacity_bytes == 0


def test_runtime_without_file_systems() -> None:
    with pytest.raises(ValueError, match="imageFs information is unavailable"):
        stats.CRIStatsProvider(ImageService()).image_fs_stats(CTX)


def test_file_system_that_is_not_there() -> None:
    service = ImageService()
    service.response = runtimeapi.ImageFsInfoResponse(image_filesystems=[usage("/not/there")])
    with pytest.raises(OSError, match="No such file"):
        stats.CRIStatsProvider(service).image_fs_stats(CTX)
