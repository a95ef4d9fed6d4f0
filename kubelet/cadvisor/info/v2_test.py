"""Test the conversion of samples to rates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubelet.cadvisor.info import v1, v2

START = datetime(2026, 11, 21, tzinfo=UTC)
EVERYTHING = v1.ContainerSpec(
    has_cpu=True, has_memory=True, has_network=True, has_processes=True, has_filesystem=True, has_disk_io=True
)


def sample(second: float, total: int, per_cpu: list[int] | None = None) -> v1.ContainerStats:
    usage = v1.CpuUsage(total=total, per_cpu=per_cpu or [], user=total // 4, system=total // 2)
    return v1.ContainerStats(timestamp=START, steady=START + timedelta(seconds=second), cpu=v1.CpuStats(usage=usage))


@pytest.mark.parametrize(
    ("last", "cur", "expected"),
    [
        pytest.param(None, sample(0, 5), None, id="the first"),
        pytest.param(sample(0, 0), sample(1, 400), v2.CpuInstUsage(400, [], 100, 200), id="a second"),
        pytest.param(sample(0, 1000), sample(0.5, 1400), v2.CpuInstUsage(800, [], 200, 400), id="half a second"),
        pytest.param(
            sample(0, 0, [0, 0]), sample(2, 800, [600, 200]), v2.CpuInstUsage(400, [300, 100], 100, 200), id="two cpus"
        ),
        pytest.param(sample(0, 7), sample(10, 7), v2.CpuInstUsage(), id="idle"),
    ],
)
def test_inst_cpu_stats(
    last: v1.ContainerStats | None, cur: v1.ContainerStats, expected: v2.CpuInstUsage | None
) -> None:
    found = v2.inst_cpu_stats(last, cur)
    assert (found.usage if found is not None else None) == expected


@pytest.mark.parametrize(
    ("last", "cur", "message"),
    [
        pytest.param(sample(1, 5), sample(1, 6), "container stats move backwards in time", id="no time between"),
        pytest.param(sample(2, 5), sample(1, 6), "container stats move backwards in time", id="back in time"),
        pytest.param(sample(0, 5), sample(1, 4), "cumulative stats decrease", id="less than before"),
        pytest.param(sample(0, 5, [5]), sample(1, 6, [3, 3]), "different number of cpus", id="a cpu more"),
    ],
)
def test_samples_that_cannot_be_compared(last: v1.ContainerStats, cur: v1.ContainerStats, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        v2.inst_cpu_stats(last, cur)
    _, found = v2.container_stats_from_v1("/app", EVERYTHING, [last, cur])
    assert (found.cpu, found.cpu_inst) == (cur.cpu, None), "there is no rate, and all else is there"


def test_only_what_the_container_has() -> None:
    (found,) = v2.container_stats_from_v1("/app", v1.ContainerSpec(), [sample(0, 5)])
    assert found == v2.ContainerStats(timestamp=START)


def test_all_that_a_container_has() -> None:
    value = sample(0, 5)
    value.filesystem = [v1.FsStats("/dev/vda", usage=100, base_usage=60, inodes=7)]
    value.network.interfaces = [v1.InterfaceStats("eth0", 1)]
    (found,) = v2.container_stats_from_v1("/app", EVERYTHING, [value])
    assert found.memory is value.memory
    assert found.processes is value.processes
    assert found.disk_io is value.disk_io
    assert found.network == v2.NetworkStats([v1.InterfaceStats("eth0", 1)])
    assert found.filesystem == v2.FilesystemStats(100, 60, 7)


@pytest.mark.parametrize("name", ["/", "/app"])
def test_several_file_systems_have_no_one_figure(name: str) -> None:
    value = sample(0, 5)
    value.filesystem = [v1.FsStats("/dev/vda"), v1.FsStats("/dev/vdb")]
    (found,) = v2.container_stats_from_v1(name, EVERYTHING, [value])
    assert found.filesystem is None


def test_spec() -> None:
    spec = v1.ContainerSpec(
        creation_time=START,
        labels={"a": "b"},
        has_cpu=True,
        cpu=v1.CpuSpec(1024, 20000, 100000),
        memory=v1.MemorySpec(5, 6, 7),
        image="busybox",
    )
    found = v2.container_spec_from_v1(spec, ["id", "/app"], "containerd")
    assert (found.creation_time, found.labels, found.image) == (START, {"a": "b"}, "busybox")
    assert (found.aliases, found.namespace) == (["id", "/app"], "containerd")
    assert found.cpu == v1.CpuSpec(limit=1024), "without the quota, as in Go"
    assert found.memory == v1.MemorySpec(), "it has no limits that nobody enforces"
