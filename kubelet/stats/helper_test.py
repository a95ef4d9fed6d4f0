"""Test the conversion of cAdvisor's statistics.

Go: pkg/kubelet/stats/helper_test.go
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cadvisor.testing import FakeCadvisor
from kubelet.stats import helper, testing


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(None, None, None), (100, None, 100), (None, 100, 100), (100, 100, 200)],
    ids=["both nil", "first non-nil, second not", "first nil, second non-nil", "both non nil"],
)
def test_merge_process_stats(first: int | None, second: int | None, expected: int | None) -> None:
    def stats(count: int | None) -> statsapi.ProcessStats | None:
        return None if count is None else statsapi.ProcessStats(process_count=count)

    assert helper.merge_process_stats(stats(first), stats(second)) == stats(expected)


def test_cpu_and_memory() -> None:
    cpu, memory = helper.cadvisor_info_to_cpu_and_memory_stats(testing.container_info(1000))
    data = statsapi.PSIData
    assert cpu == statsapi.CPUStats(
        time=testing.TIMESTAMP,
        usage_nano_cores=1011,
        usage_core_nano_seconds=1010,
        psi=statsapi.PSIStats(
            full=data(total=1001, avg10=1.0, avg60=2.0, avg300=3.0),
            some=data(total=1002, avg10=4.0, avg60=5.0, avg300=6.0),
        ),
    )
    assert memory is not None and memory.psi is not None
    assert memory.psi.full.total == 1101
    memory.psi = None
    assert memory == statsapi.MemoryStats(
        time=testing.TIMESTAMP,
        usage_bytes=1012,
        working_set_bytes=1013,
        rss_bytes=1014,
        page_faults=1016,
        major_page_faults=1017,
    )


@pytest.mark.parametrize(
    ("limit", "available"), [(5000, 3987), (1000, 0), ((1 << 62) + 1, None)], ids=["limited", "full", "unlimited"]
)
def test_what_the_limit_leaves(limit: int, available: int | None) -> None:
    info = testing.container_info(1000)
    info.spec.memory.limit = limit
    _, memory = helper.cadvisor_info_to_cpu_and_memory_stats(info)
    assert memory is not None and memory.available_bytes == available


def test_cgroup_without_processors_or_memory() -> None:
    info = testing.container_info(1000)
    info.spec.has_cpu = info.spec.has_memory = False
    cpu, memory = helper.cadvisor_info_to_cpu_and_memory_stats(info)
    assert cpu == statsapi.CPUStats(time=testing.TIMESTAMP, usage_nano_cores=0, usage_core_nano_seconds=0)
    assert memory == statsapi.MemoryStats(time=testing.TIMESTAMP, working_set_bytes=0)
    assert helper.cadvisor_info_to_swap_stats(info) is None


def test_container_without_figures() -> None:
    info = cadvisorapiv2.ContainerInfo(cadvisorapiv2.ContainerSpec(creation_time=testing.CREATION_TIME))
    expected = statsapi.ContainerStats(name="c", start_time=testing.CREATION_TIME)
    assert helper.cadvisor_info_to_container_stats("c", info) == expected
    assert helper.cadvisor_info_to_process_stats(info) is None
    assert helper.cadvisor_info_to_network_stats(info) is None


def test_swap_and_io() -> None:
    stats = helper.cadvisor_info_to_container_stats("c", testing.container_info(1000))
    assert stats.swap == statsapi.SwapStats(time=testing.TIMESTAMP, swap_usage_bytes=1015, swap_available_bytes=985)
    assert stats.io is not None and stats.io.psi is not None
    assert stats.io.psi.some.total == 1202
    assert stats.rootfs is None and stats.logs is None


def test_network() -> None:
    network = helper.cadvisor_info_to_network_stats(testing.container_info(1000))
    eth0 = statsapi.InterfaceStats(name="eth0", rx_bytes=1021, rx_errors=1022, tx_bytes=1023, tx_errors=1024)
    other = statsapi.InterfaceStats(name="cbr0", rx_bytes=1, rx_errors=0, tx_bytes=0, tx_errors=0)
    assert network == statsapi.NetworkStats(
        time=testing.TIMESTAMP,
        name="eth0",
        rx_bytes=1021,
        rx_errors=1022,
        tx_bytes=1023,
        tx_errors=1024,
        interfaces=[eth0, other],
    )


def test_calc_ephemeral_storage() -> None:
    """The logs of a container count only together with its layer, which every running container has."""
    later = testing.TIMESTAMP + timedelta(seconds=5)
    containers = [
        statsapi.ContainerStats(
            rootfs=statsapi.FsStats(used_bytes=1, inodes_used=10), logs=statsapi.FsStats(used_bytes=2, inodes_used=20)
        ),
        statsapi.ContainerStats(logs=statsapi.FsStats(used_bytes=1_000_000)),
        statsapi.ContainerStats(rootfs=statsapi.FsStats()),
    ]
    volumes = [statsapi.VolumeStats(used_bytes=4, inodes_used=40, time=later)]
    logs, hosts = statsapi.FsStats(used_bytes=8, inodes_used=80), statsapi.FsStats(used_bytes=16, inodes_used=160)
    result = helper.calc_ephemeral_storage(containers, volumes, testing.fs_info(0), logs, hosts)
    assert result == statsapi.FsStats(
        time=later,
        available_bytes=32,
        capacity_bytes=31,
        inodes=3400,
        inodes_free=35,
        used_bytes=31,
        inodes_used=310,
    )


def test_ephemeral_storage_that_nobody_knows() -> None:
    result = helper.calc_ephemeral_storage([], [], testing.fs_info(0), None, None)
    assert result.used_bytes is None and result.inodes_used is None


def test_get_cgroup_info() -> None:
    cadvisor = FakeCadvisor(containers_v2={"/": testing.container_info(1), "/a": testing.container_info(2)})
    helper.get_cgroup_info(cadvisor, "/a", update_stats=True)
    helper.get_cgroup_info(cadvisor, "/", update_stats=False)
    options = [(name, options.count, options.max_age, options.recursive) for name, options in cadvisor.calls]
    assert options == [("/a", 2, 0.0, False), ("/", 2, None, False)]
    with pytest.raises(LookupError):
        helper.get_cgroup_info(cadvisor, "/b", update_stats=True)


def test_cgroup_without_samples() -> None:
    cadvisor = FakeCadvisor(containers_v2={"/": cadvisorapiv2.ContainerInfo()})
    with pytest.raises(LookupError, match='failed to get latest stats from container info for "/"'):
        helper.get_cgroup_stats(cadvisor, "/", update_stats=False)
