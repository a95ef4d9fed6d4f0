"""Test the metrics of the machine and its containers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubelet.cadvisor import cgroups
from kubelet.cadvisor.info import v1 as info
from kubelet.cadvisor.info import v2
from kubelet.cadvisor.metrics import PrometheusCollector, PrometheusMachineCollector
from pkg.apimachinery.clock.testing import FakeClock
from pkg.component_base import metrics

# In milliseconds, this is 1000000000500.
MOMENT = datetime.fromtimestamp(1_000_000_000.5, UTC)
NOW = datetime.fromtimestamp(1_000_000_003.25, UTC)


class Provider:
    """Provide the containers that a test sets."""

    def __init__(self, *containers: info.ContainerInfo) -> None:
        self.containers = {container.reference.name: container for container in containers}
        self.err: Exception | None = None
        self.modules: dict[str, info.MemoryInfo] = {}

    def get_requested_containers_info(
        self, container_name: str, options: v2.RequestOptions
    ) -> dict[str, info.ContainerInfo]:
        assert (container_name, options) == ("/", v2.RequestOptions(count=1, recursive=True))
        if self.err is not None:
            raise self.err
        return self.containers

    def get_version_info(self) -> info.VersionInfo:
        if self.err is not None:
            raise self.err
        return info.VersionInfo("6.18.44", "Debian GNU/Linux 12 (bookworm)")

    def get_cached_machine_info(self) -> info.MachineInfo:
        if self.err is not None:
            raise self.err
        return info.MachineInfo(
            2, 1024, 512, "machine", "system", "boot", num_physical_cores=1, num_sockets=1, memory_by_type=self.modules
        )


def page(provider: Provider, include_pressure: bool = True) -> str:
    registry = metrics.KubeRegistry()
    clock = FakeClock(NOW)
    registry.must_register(PrometheusMachineCollector(provider))
    registry.must_register(PrometheusCollector(provider, lambda c: {"id": c.reference.name}, include_pressure, clock))
    return registry.expose().decode()


def values(text: str, name: str) -> dict[str, str]:
    """Return the values of a metric by the text between the braces."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            labels, _, value = line.removeprefix(f"{name}{{").partition("} ")
            found[labels] = value
        elif line.startswith(f"{name} "):
            found[""] = line.removeprefix(f"{name} ")
    return found


def container(name: str = "/app", spec: info.ContainerSpec | None = None) -> info.ContainerInfo:
    stats = info.ContainerStats(timestamp=MOMENT)
    return info.ContainerInfo(info.ContainerReference(name), spec or info.ContainerSpec(), [stats])


def test_figures_of_a_container() -> None:
    app = container()
    stats = app.stats[0]
    stats.cpu.usage = info.CpuUsage(total=3_500_000_000, user=1_500_000_000, system=2_000_000_000)
    stats.memory = info.MemoryStats(usage=1000, max_usage=2000, cache=3, rss=4, swap=5, mapped_file=6, working_set=700)
    stats.memory.hierarchical_data = info.MemoryStatsMemoryData(pgfault=11, pgmajfault=12)
    stats.processes = info.ProcessStats(2, 6, 1, 3, 0, [info.UlimitSpec("max_open_files", -1, -1)])
    stats.oom_events = 7
    stats.cpu.psi.some.total, stats.memory.psi.full.total = 2_500_000, 1_000_000
    text = page(Provider(app))
    expected = {
        "container_cpu_usage_seconds_total": {'cpu="total",id="/app"': "3.5"},
        "container_cpu_user_seconds_total": {'id="/app"': "1.5"},
        "container_cpu_system_seconds_total": {'id="/app"': "2"},
        "container_memory_usage_bytes": {'id="/app"': "1000"},
        "container_memory_max_usage_bytes": {'id="/app"': "2000"},
        "container_memory_working_set_bytes": {'id="/app"': "700"},
        "container_memory_swap": {'id="/app"': "5"},
        "container_memory_failures_total": {
            'failure_type="pgfault",id="/app",scope="container"': "0",
            'failure_type="pgmajfault",id="/app",scope="container"': "0",
            'failure_type="pgfault",id="/app",scope="hierarchy"': "11",
            'failure_type="pgmajfault",id="/app",scope="hierarchy"': "12",
        },
        "container_oom_events_total": {'id="/app"': "7"},
        "container_processes": {'id="/app"': "2"},
        "container_file_descriptors": {'id="/app"': "6"},
        "container_sockets": {'id="/app"': "1"},
        "container_threads": {'id="/app"': "3"},
        "container_threads_max": {'id="/app"': "0"},
        "container_ulimits_soft": {'id="/app",ulimit="max_open_files"': "-1"},
        "container_pressure_cpu_waiting_seconds_total": {'id="/app"': "2.5"},
        "container_pressure_memory_stalled_seconds_total": {'id="/app"': "1"},
        "container_health_state": {'id="/app"': "-1"},
    }
    for name, wanted in expected.items():
        with_moment = {labels: f"{value} 1000000000500" for labels, value in wanted.items()}
        assert values(text, name) == with_moment, name
    assert values(text, "container_last_seen") == {'id="/app"': "1.000000003e+09 1000000003250"}
    assert values(text, "container_scrape_error") == {"": "0"}


def test_types_and_help() -> None:
    app = container()
    app.stats[0].cpu.usage.total = 1
    text = page(Provider(app))
    assert "# HELP container_cpu_usage_seconds_total CPU time spent, in seconds.\n" in text
    assert "# TYPE container_cpu_usage_seconds_total counter\n" in text
    assert "# TYPE container_memory_working_set_bytes gauge\n" in text
    assert "# TYPE container_memory_failcnt counter\n" in text
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert names == sorted(names)
    assert len(names) == len(set(names))


def test_network_and_disks() -> None:
    app = container()
    stats = app.stats[0]
    stats.network.interfaces = [info.InterfaceStats("eth0", 1, 2, 3, 4, 5, 6, 7, 8), info.InterfaceStats("eth1", 9)]
    disk = info.PerDiskStats("/dev/vda", 253, 0, {"Read": 4096, "Write": 8192})
    stats.disk_io = info.DiskIoStats(
        io_service_bytes=[disk],
        io_service_time=[info.PerDiskStats("/dev/vda", 253, 0, {"Read": 2_000_000_000})],
        io_cost_usage=[info.PerDiskStats("/dev/vda", 253, 0, {"Count": 1_500_000})],
    )
    text = page(Provider(app))

    def plain(name: str) -> dict[str, str]:
        return {labels: value.removesuffix(" 1000000000500") for labels, value in values(text, name).items()}

    assert plain("container_network_receive_bytes_total") == {
        'id="/app",interface="eth0"': "1",
        'id="/app",interface="eth1"': "9",
    }
    sent = ("bytes", "packets", "errors", "packets_dropped")
    assert [plain(f"container_network_transmit_{kind}_total")['id="/app",interface="eth0"'] for kind in sent] == [
        *("5", "6", "7", "8")
    ]
    assert plain("container_fs_reads_bytes_total") == {'device="/dev/vda",id="/app"': "4096"}
    assert plain("container_fs_writes_bytes_total") == {'device="/dev/vda",id="/app"': "8192"}
    assert plain("container_fs_read_seconds_total") == {'device="/dev/vda",id="/app"': "2"}
    assert plain("container_fs_io_cost_usage_seconds_total") == {'device="/dev/vda",id="/app"': "1.5"}
    assert plain("container_blkio_device_usage_total") == {
        'device="/dev/vda",id="/app",major="253",minor="0",operation="Read"': "4096",
        'device="/dev/vda",id="/app",major="253",minor="0",operation="Write"': "8192",
    }


def test_file_systems_of_the_machine() -> None:
    """A disk of both the cgroup and the file systems appears once.

    Prometheus rejects a page with duplicate labels.
    """
    machine = container("/")
    stats = machine.stats[0]
    stats.filesystem = [
        info.FsStats("/dev/vda", "vfs", limit=100, usage=40, inodes=9, inodes_free=8, reads_completed=77),
        info.FsStats("/dev/vdb", "vfs", reads_completed=78),
    ]
    stats.disk_io.io_serviced = [info.PerDiskStats("/dev/vda", 253, 0, {"Read": 5})]
    text = page(Provider(machine))
    assert values(text, "container_fs_limit_bytes")['device="/dev/vda",id="/"'] == "100 1000000000500"
    assert values(text, "container_fs_reads_total") == {
        'device="/dev/vda",id="/"': "5 1000000000500",
        'device="/dev/vdb",id="/"': "78 1000000000500",
    }
    samples = [line.rpartition("} ")[0] for line in text.splitlines() if "{" in line and line[0] != "#"]
    assert len(samples) == len(set(samples))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(info.ContainerSpec(), {}, id="neither"),
        pytest.param(
            info.ContainerSpec(has_cpu=True, cpu=info.CpuSpec(limit=102, period=100000)),
            {"cpu_period": "100000", "cpu_shares": "102"},
            id="no quota",
        ),
        pytest.param(
            info.ContainerSpec(has_cpu=True, cpu=info.CpuSpec(102, 20000, 100000)),
            {"cpu_period": "100000", "cpu_shares": "102", "cpu_quota": "20000"},
            id="quota",
        ),
        pytest.param(
            info.ContainerSpec(has_memory=True, memory=info.MemorySpec(4096, 0, cgroups.UNLIMITED)),
            {"memory_limit_bytes": "4096", "memory_reservation_limit_bytes": "0", "memory_swap_limit_bytes": "0"},
            id="memory",
        ),
    ],
)
def test_limits(spec: info.ContainerSpec, expected: dict[str, str]) -> None:
    text = page(Provider(container(spec=spec)))
    found = {
        line.partition("{")[0].removeprefix("container_spec_"): line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("container_spec_")
    }
    assert found == expected
    throttled = bool(values(text, "container_cpu_cfs_throttled_periods_total"))
    assert throttled == (spec.cpu.quota != 0), "only of those that have a quota"


def test_pressure_where_the_kernel_tells_none() -> None:
    assert "container_pressure_" not in page(Provider(container()), include_pressure=False)


def test_container_without_samples() -> None:
    app = container()
    app.stats = []
    text = page(Provider(app))
    assert values(text, "container_start_time_seconds") == {'id="/app"': "0"}
    assert values(text, "container_last_seen") == {}


def test_page_of_the_go_kubelet() -> None:
    """The page has the families, types and labels of the Go kubelet's page, and no others except pressure.

    testdata/upstream.tsv is what v1.36.2 showed on a node with cgroups of version 1 and one pod.
    """
    lines = (Path(__file__).parents[1] / "testdata/upstream.tsv").read_text().splitlines()
    upstream = {name: (type, labels.split()) for name, type, labels in (line.split("\t") for line in lines)}
    spec = info.ContainerSpec(has_cpu=True, cpu=info.CpuSpec(102, 20000, 100000), has_memory=True)
    app = container(spec=spec)
    stats = app.stats[0]
    stats.cpu.usage.total = 1
    stats.network.interfaces = [info.InterfaceStats("eth0")]
    stats.filesystem = [info.FsStats("/dev/vda")]
    stats.processes.ulimits = [info.UlimitSpec("max_open_files", 1, 1)]
    text = page(Provider(app), include_pressure=False)
    types = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    found = {name: (type, labels_of(text, name)) for name, type in types.items()}
    assert found == upstream


def labels_of(text: str, name: str) -> list[str]:
    """Return the label names of a metric's samples, with those that the kubelet adds to a container's id."""
    labels = {label for line in values(text, name) for label in re.findall(r'(\w+)="', line)}
    return sorted(labels | {"container", "image", "name", "namespace", "pod"} if "id" in labels else labels)


def test_machine() -> None:
    text = page(Provider())
    labels = 'boot_id="boot",machine_id="machine",system_uuid="system"'
    expected = {
        "machine_cpu_cores": "2",
        "machine_cpu_physical_cores": "1",
        "machine_cpu_sockets": "1",
        "machine_memory_bytes": "1024",
        "machine_swap_bytes": "512",
        "machine_nvm_avg_power_budget_watts": "0",
    }
    assert {name: values(text, name) for name in expected} == {
        name: {labels: value} for name, value in expected.items()
    }
    assert len(values(text, "machine_nvm_capacity")) == 2
    assert values(text, "machine_dimm_count") == {}, "the kernel told nothing of modules"
    version = 'cadvisorRevision="",cadvisorVersion="",dockerVersion="",kernelVersion="6.18.44",'
    version += 'osVersion="Debian GNU/Linux 12 (bookworm)"'
    assert values(text, "cadvisor_version_info") == {version: "1"}
    assert values(text, "machine_scrape_error") == {"": "0"}


def test_memory_modules() -> None:
    provider = Provider()
    provider.modules = {"Registered-DDR4": info.MemoryInfo(32 << 30, 2)}
    text = page(provider)
    labels = 'boot_id="boot",machine_id="machine",system_uuid="system",type="Registered-DDR4"'
    assert values(text, "machine_dimm_count") == {labels: "2"}
    assert values(text, "machine_dimm_capacity_bytes") == {labels: "3.4359738368e+10"}


@pytest.mark.parametrize("err", [OSError("disk gone"), FileNotFoundError("x")])
def test_errors_are_counted_and_the_page_is_served(err: Exception) -> None:
    provider = Provider(container())
    provider.err = err
    text = page(provider)
    assert values(text, "container_scrape_error") == {"": "1"}
    assert values(text, "machine_scrape_error") == {"": "1"}
    assert "machine_memory_bytes" not in text
    assert "container_last_seen" not in text
