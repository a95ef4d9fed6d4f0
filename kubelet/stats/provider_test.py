"""Test the statistics of the node.

Go: pkg/kubelet/stats/provider_test.go
"""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from kubelet import stats
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.testing import FakeCadvisor
from kubelet.stats import testing
from pkg import golang

CTX = golang.background()


class Containers:
    """Report the devices of images and containers' layers."""

    def __init__(self, images: str, layers: str) -> None:
        self._images, self._layers = images, layers

    def image_fs_device(self, ctx: golang.Context) -> str:
        return self._images

    def container_fs_device(self, ctx: golang.Context) -> str:
        return self._layers


def provider(cadvisor: FakeCadvisor, containers: Containers | None = None) -> stats.Provider:
    return stats.Provider(cadvisor, cast(stats.ContainerStatsProvider, containers))


def test_get_cgroup_stats() -> None:
    cadvisor = FakeCadvisor(containers_v2={"/cgroup": testing.container_info(1000)})
    found, network = provider(cadvisor).get_cgroup_stats("/cgroup", True)
    assert (found.name, found.start_time) == ("/cgroup", testing.CREATION_TIME)
    assert found.cpu is not None and found.cpu.usage_core_nano_seconds == 1010
    assert found.io is not None and found.swap is not None and found.rootfs is None
    assert network is not None and network.rx_bytes == 1021
    with pytest.raises(LookupError):
        provider(cadvisor).get_cgroup_stats("/other", True)


def test_get_cgroup_cpu_and_memory_stats() -> None:
    cadvisor = FakeCadvisor(containers_v2={"/cgroup": testing.container_info(1000)})
    found = provider(cadvisor).get_cgroup_cpu_and_memory_stats("/cgroup", False)
    assert found.memory is not None and found.memory.working_set_bytes == 1013
    assert found.io is None
    with pytest.raises(LookupError):
        provider(cadvisor).get_cgroup_cpu_and_memory_stats("/other", True)


def test_root_fs_stats() -> None:
    info = testing.fs_info(1000)
    cadvisor = FakeCadvisor(containers_v2={"/": testing.container_info(1)}, root_fs=info)
    expected = statsapi.FsStats(
        time=testing.TIMESTAMP,
        available_bytes=1032,
        capacity_bytes=1031,
        used_bytes=1033,
        inodes=4400,
        inodes_free=1035,
        inodes_used=3365,
    )
    assert provider(cadvisor).root_fs_stats() == expected
    cadvisor.root_fs = msgspec.structs.replace(info, inodes=None, inodes_free=None)
    assert provider(cadvisor).root_fs_stats().inodes_used is None


@pytest.mark.parametrize(
    ("images", "layers", "dedicated_image_fs", "dedicated_container_fs"),
    [
        pytest.param("/dev/test", "/dev/test", False, False, id="one file system"),
        pytest.param("/dev/other", "/dev/other", True, False, id="images and layers apart"),
        pytest.param("/dev/other", "/dev/test", True, True, id="images apart"),
        pytest.param("/dev/test", "/dev/other", True, True, id="layers apart"),
    ],
)
def test_dedicated_file_systems(
    images: str, layers: str, dedicated_image_fs: bool, dedicated_container_fs: bool
) -> None:
    found = provider(FakeCadvisor(root_fs=testing.fs_info(1)), Containers(images, layers))
    assert found.has_dedicated_image_fs(CTX) is dedicated_image_fs
    assert found.has_dedicated_container_fs(CTX) is dedicated_container_fs


def test_rlimit_stats() -> None:
    assert provider(FakeCadvisor()).rlimit_stats().num_of_running_processes
