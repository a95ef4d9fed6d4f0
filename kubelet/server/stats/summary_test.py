"""Test the summary and the page that shows it.

Go: pkg/kubelet/server/stats/summary_test.go
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from kubelet import cm
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.server import stats
from kubelet.server.stats.summary import SummaryProviderImpl
from kubelet.server.stats.testing import FakeProvider
from pkg import golang
from pkg.apimachinery.api import errors as apierrors
from pkg.golang import testing as golangtesting
from pkg.golang.http import testing as httptesting

CTX = golang.background()
TIME = datetime(2026, 1, 2, 3, 4, 5, 678900, UTC)


def container(seed: int) -> statsapi.ContainerStats:
    return statsapi.ContainerStats(
        name="cgroup",
        start_time=TIME,
        cpu=statsapi.CPUStats(time=TIME, usage_core_nano_seconds=seed + 1),
        memory=statsapi.MemoryStats(time=TIME, usage_bytes=seed + 2),
        io=statsapi.IOStats(time=TIME),
        swap=statsapi.SwapStats(time=TIME, swap_usage_bytes=seed + 3),
        logs=statsapi.FsStats(used_bytes=seed + 4),
        rootfs=statsapi.FsStats(used_bytes=seed + 5),
    )


@pytest.fixture
def provider() -> FakeProvider:
    names = ("/", "/runtime", "/misc", "/kubelet", "/kubepods")
    return FakeProvider(
        node_config=cm.NodeConfig(
            runtime_cgroups_name="/runtime", system_cgroups_name="/misc", kubelet_cgroups_name="/kubelet"
        ),
        cgroups={name: container(100 * i) for i, name in enumerate(names)},
        network=statsapi.NetworkStats(name="eth0"),
        pod_stats=[statsapi.PodStats(pod_ref=statsapi.PodReference(name="pod"))],
        root_fs=statsapi.FsStats(used_bytes=1),
        image_fs=statsapi.FsStats(used_bytes=2),
        container_fs=statsapi.FsStats(used_bytes=3),
    )


def by_name(node: statsapi.NodeStats) -> dict[str, statsapi.ContainerStats]:
    return {container.name: container for container in node.system_containers}


@pytest.mark.parametrize("update", [True, False])
def test_get(provider: FakeProvider, update: bool) -> None:
    """With an update, everything except the cgroups of daemons is measured again."""
    summary = SummaryProviderImpl(provider).get(CTX, update)
    assert summary.pods is provider.pod_stats
    node, root = summary.node, provider.cgroups["/"]
    assert node.node_name == "test-node"
    assert node.start_time is not None and node.start_time < datetime.now(UTC)
    assert (node.cpu, node.memory, node.swap, node.io) == (root.cpu, root.memory, root.swap, root.io)
    assert node.network is provider.network
    assert node.fs is provider.root_fs
    assert node.runtime == statsapi.RuntimeStats(container_fs=provider.container_fs, image_fs=provider.image_fs)
    assert node.rlimit == statsapi.RlimitStats(max_pid=10)
    listing = "list_pod_stats_and_update_cpu_nano_core_usage" if update else "list_pod_stats"
    assert {call for call in provider.calls if "pod" in call} == {f"get_cgroup_stats /kubepods {update}", listing}
    assert {f"get_cgroup_stats / {update}", "get_cgroup_stats /kubelet False"} <= set(provider.calls)


def test_get_node_and_disks(provider: FakeProvider) -> None:
    summaries = SummaryProviderImpl(provider)
    whole = summaries.get(CTX, True)
    provider.calls.clear()
    assert summaries.get_node(CTX, True) == statsapi.Summary(node=whole.node)
    assert not [call for call in provider.calls if call.startswith("list_pod")]
    assert summaries.get_disks(CTX, True) == whole
    assert [call for call in provider.calls if call.startswith("list_pod")] == ["list_pod_disk_stats"]


def test_system_containers(provider: FakeProvider) -> None:
    found = by_name(SummaryProviderImpl(provider).get(CTX, True).node)
    assert set(found) == {"kubelet", "runtime", "misc", "pods"}
    for name, one in found.items():
        assert one.logs is None and one.rootfs is None, "cgroups are not on disk"
        assert one.cpu is not None and one.io is not None and one.swap is not None
        if name != "kubelet":
            assert one.start_time == TIME
    assert found["kubelet"].start_time is not None and found["kubelet"].start_time > TIME, "known better"
    assert found["pods"].memory is not None and found["pods"].memory.usage_bytes == 402


def test_system_containers_that_are_not_there(provider: FakeProvider) -> None:
    provider.node_config.system_cgroups_name = ""
    del provider.cgroups["/runtime"]
    summaries = SummaryProviderImpl(provider)
    assert set(by_name(summaries.get(CTX, True).node)) == {"kubelet", "pods"}
    assert set(by_name(summaries.get_cpu_and_memory_stats(CTX).node)) == {"kubelet", "pods"}


def test_get_cpu_and_memory_stats(provider: FakeProvider) -> None:
    summary = SummaryProviderImpl(provider).get_cpu_and_memory_stats(CTX)
    node, root = summary.node, provider.cgroups["/"]
    assert (node.node_name, node.start_time) == ("test-node", TIME)
    assert (node.cpu, node.memory, node.swap) == (root.cpu, root.memory, root.swap)
    assert node.io is None and node.network is None and node.fs is None and node.runtime is None and node.rlimit is None
    assert set(by_name(node)) == {"kubelet", "runtime", "misc", "pods"}
    assert summary.pods is provider.pod_stats
    names = ("/", "/kubelet", "/runtime", "/misc", "/kubepods")
    cgroups = [call for call in provider.calls if "cgroup" in call]
    assert cgroups == [f"get_cgroup_cpu_and_memory_stats {name} False" for name in names]


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("get_node", "get node info"),
        ("get_cgroup_stats", "get root cgroup stats"),
        ("root_fs_stats", "get rootFs stats"),
        ("image_fs_stats", "get imageFs stats"),
        ("list_pod_stats", "list pod stats"),
        ("rlimit_stats", "get rlimit stats"),
    ],
)
def test_faults(provider: FakeProvider, method: str, what: str) -> None:
    provider.errors[method] = OSError("disk on fire")
    with pytest.raises(stats.StatsError, match=f"^failed to {what}: disk on fire$"):
        SummaryProviderImpl(provider).get(CTX, False)


def test_node_that_the_api_server_does_not_have(provider: FakeProvider) -> None:
    provider.errors["get_node"] = apierrors.new_not_found("nodes", "test-node")
    summaries = SummaryProviderImpl(provider)
    with pytest.raises(stats.StatsError, match="failed to get node info"):
        summaries.get(CTX, True)
    with pytest.raises(stats.StatsError, match="failed to get node info"):
        summaries.get_cpu_and_memory_stats(CTX)


# ---- The page ----


def ask(provider: FakeProvider, target: str, method: str = "GET") -> httptesting.Recorded:
    ((path, handler),) = stats.create_handlers("/stats", SummaryProviderImpl(provider)).items()
    assert path == "/stats/summary"
    return httptesting.record(handler, method, target)


def test_summary_page(provider: FakeProvider) -> None:
    answer = ask(provider, "/stats/summary")
    assert (answer.status, answer.headers.get("Content-Type")) == (200, "application/json")
    shown: dict[str, Any] = json.loads(answer.body)
    assert shown["node"]["cpu"] == {"time": "2026-01-02T03:04:05Z", "usageCoreNanoSeconds": 1}
    assert shown["node"]["runtime"]["imageFs"] == {"time": None, "usedBytes": 2}
    pod: dict[str, Any] = {"podRef": {"name": "pod", "namespace": "", "uid": ""}, "startTime": None, "containers": []}
    assert shown["pods"] == [pod]
    assert "list_pod_stats" in provider.calls, "nothing is measured anew for whoever asks"


@pytest.mark.parametrize(
    ("query", "all"),
    [
        ("only_cpu_and_memory=true", False),
        ("only_cpu_and_memory=false", True),
        ("only_cpu_and_memory", True),
        ("only_cpu_and_memory=true&only_cpu_and_memory=true", True),
        ("x=1", True),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_only_cpu_and_memory(provider: FakeProvider, query: str, all: bool, method: str) -> None:
    shown = json.loads(ask(provider, f"/stats/summary?{query}", method).body)
    assert ("network" in shown["node"]) is all


@dataclass
class _Slow(FakeProvider):
    """Wait for a gate at each list of the pods' statistics."""

    gate: golangtesting.Gate = field(default_factory=golangtesting.Gate)

    def list_pod_stats(self, ctx: golang.Context) -> list[statsapi.PodStats]:
        self.gate.pass_through()
        return super().list_pod_stats(ctx)


def test_who_asks_while_a_summary_is_made_shares_the_next_one(provider: FakeProvider) -> None:
    slow = _Slow(cgroups=provider.cgroups)
    handler = stats.create_handlers("/stats", SummaryProviderImpl(slow))["/stats/summary"]
    answers = golangtesting.ask_as_crowd(
        slow.gate, lambda ctx: httptesting.record(handler, "GET", "/stats/summary", ctx=ctx)
    )
    assert [answer.status for answer in answers] == [200] * 4
    assert slow.gate.rounds == 2


def test_page_of_a_node_in_trouble(provider: FakeProvider) -> None:
    provider.errors["list_pod_stats"] = ValueError("no runtime")
    answer = ask(provider, "/stats/summary")
    assert answer.status == 500
    assert answer.body == b"Internal Error: failed to list pod stats: no runtime"
