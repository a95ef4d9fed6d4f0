"""Devices of containers that are volumes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubelet import container as kubecontainer
from kubelet.kubelet_pods import make_block_volumes
from pkg.api.core import v1
from pkg.volume.util.volumepathhandler import VolumePathHandler


class Mapper:
    def __init__(self, directory: Path, name: str) -> None:
        self.path = (str(directory), name)

    def get_pod_device_map_path(self) -> tuple[str, str]:
        return self.path


def block(directory: Path, name: str, read_only: bool = False) -> kubecontainer.VolumeInfo:
    mapper = Mapper(directory, name)
    return kubecontainer.VolumeInfo(block_volume_mapper=mapper, read_only=read_only)  # type: ignore[arg-type]


def container(**devices: str) -> v1.Container:
    return v1.Container(
        name="c", volume_devices=[v1.VolumeDevice(name=name, device_path=path) for name, path in devices.items()]
    )


def test_devices_are_the_links_that_are_there(tmp_path: Path) -> None:
    for name in ("disk", "readonly"):
        os.symlink("/dev/null", tmp_path / name)
    volumes = {
        "disk": block(tmp_path, "disk"),
        "readonly": block(tmp_path, "readonly", read_only=True),
        "unmapped": block(tmp_path, "unmapped"),
    }
    devices = make_block_volumes(
        container(disk="/dev/xvda", readonly="/dev/xvdb", unmapped="/dev/xvdc"), volumes, VolumePathHandler()
    )
    assert devices == [
        kubecontainer.DeviceInfo(str(tmp_path / "disk"), "/dev/xvda", "mrw"),
        kubecontainer.DeviceInfo(str(tmp_path / "readonly"), "/dev/xvdb", "r"),
    ]


@pytest.mark.parametrize(
    ("path", "volumes", "error"),
    [
        ("dev/xvda", {}, "DevicePath `dev/xvda` must be an absolute path"),
        ("/dev/xvda", {}, 'cannot find volume "disk" to pass into container "c"'),
        ("/dev/xvda", {"disk": kubecontainer.VolumeInfo()}, 'cannot find volume "disk" to pass into container "c"'),
    ],
)
def test_devices_that_are_refused(path: str, volumes: kubecontainer.VolumeMap, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        make_block_volumes(container(disk=path), volumes, VolumePathHandler())
