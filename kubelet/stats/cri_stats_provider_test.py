"""Test the statistics from the runtime.

Go: pkg/kubelet/stats/cri_stats_provider_test.go
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import grpc
import msgspec
import pytest
from cri_api.v1 import api_pb2 as runtimeapi

from kubelet import container as kubecontainer
from kubelet import stats
from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.cadvisor.info import v2 as cadvisorapiv2
from kubelet.cadvisor.testing import FakeCadvisor
from kubelet.cri import errors as crierror
from kubelet.cri.testing import FakeContainer, FakeImageService, FakeRuntimeService
from kubelet.server import stats as serverstats
from kubelet.stats import testing
from kubelet.stats.cri_stats_provider import (
    extract_id_from_cgroup_path,
    remove_terminated_containers,
    remove_terminated_pods,
)
from pkg import golang
from pkg.api.core import v1
from pkg.apimachinery import types
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failing_once, failures

CTX = golang.background()
_NANOSECONDS = 10**9
CREATED = 1_767_322_800 * _NANOSECONDS
MEASURED = 1_767_323_045 * _NANOSECONDS
IMAGES = "/var/lib/images"
UNIMPLEMENTED = crierror.RemoteError(grpc.StatusCode.UNIMPLEMENTED, "unknown method")


def number(value: int) -> runtimeapi.UInt64Value:
    return runtimeapi.UInt64Value(value=value)


def psi(seed: int) -> runtimeapi.PsiStats:
    data = runtimeapi.PsiData(Total=seed + 50, Avg10=1.0, Avg60=2.0, Avg300=3.0)
    return runtimeapi.PsiStats(Full=data, Some=data)


def cpu_usage(seed: int) -> runtimeapi.CpuUsage:
    return runtimeapi.CpuUsage(timestamp=MEASURED, usage_core_nano_seconds=number(seed + 60), psi=psi(seed))


def memory_usage(seed: int) -> runtimeapi.MemoryUsage:
    return runtimeapi.MemoryUsage(
        timestamp=MEASURED, working_set_bytes=number(seed + 61), usage_bytes=number(seed + 62), psi=psi(seed)
    )


@dataclass
class Fallback:
    """Return the same statistics for every pod."""

    found: statsapi.PodStats = field(default_factory=statsapi.PodStats)
    calls: int = 0

    def pod_cpu_and_memory_stats(
        self, ctx: golang.Context, pod: v1.Pod, pod_status: kubecontainer.PodStatus
    ) -> statsapi.PodStats:
        self.calls += 1
        return self.found


class World:
    """Hold a runtime and its node, which the test fills."""

    def __init__(self) -> None:
        self.runtime = FakeRuntimeService()
        self.images = FakeImageService()
        self.cadvisor = FakeCadvisor(root_fs=testing.fs_info(1000), dir_fs={IMAGES: testing.fs_info(2000)})
        self.cadvisor.containers_v2["/"] = testing.container_info(1)
        self.analyzer = testing.FakeResourceAnalyzer()
        self.host = testing.FakeHostStatsProvider()
        self.fallback = Fallback()
        self.clock = FakeClock(testing.TIMESTAMP)

    def provider(self, from_cri: bool = False) -> stats.CRIStatsProvider:
        return stats.CRIStatsProvider(
            self.cadvisor,
            self.analyzer,
            self.runtime,
            self.images,
            self.host,
            from_cri,
            cast(stats.CadvisorStatsProvider, self.fallback),
            self.clock,
        )

    def add_sandbox(self, pod: str, ready: bool = True, id: str = "") -> str:
        """Add a sandbox with the pod's name, which is also its id by default."""
        id = id or pod
        self.runtime.sandboxes[id] = runtimeapi.PodSandboxStatus(
            id=id,
            metadata=runtimeapi.PodSandboxMetadata(name=pod, namespace="ns", uid=f"UID{pod}"),
            state=runtimeapi.SANDBOX_READY if ready else runtimeapi.SANDBOX_NOTREADY,
            created_at=CREATED + len(self.runtime.sandboxes),
        )
        return id

    def add_container(self, sandbox: str, name: str, running: bool = True, attempt: int = 0) -> str:
        """Add a container. Its id is sandbox.name.attempt."""
        id = f"{sandbox}.{name}.{attempt}"
        pod = self.runtime.sandboxes[sandbox].metadata
        status = runtimeapi.ContainerStatus(
            id=id,
            metadata=runtimeapi.ContainerMetadata(name=name, attempt=attempt),
            state=runtimeapi.CONTAINER_RUNNING if running else runtimeapi.CONTAINER_EXITED,
            created_at=CREATED + len(self.runtime.containers),
            labels={
                kubetypes.KUBERNETES_POD_NAME_LABEL: pod.name,
                kubetypes.KUBERNETES_POD_UID_LABEL: pod.uid,
                kubetypes.KUBERNETES_POD_NAMESPACE_LABEL: pod.namespace,
                kubetypes.KUBERNETES_CONTAINER_NAME_LABEL: name,
            },
        )
        self.runtime.containers[id] = FakeContainer(status, sandbox)
        return id

    def add_stats(self, id: str, seed: int, mountpoint: str = IMAGES) -> runtimeapi.ContainerStats:
        """Add the runtime's statistics of the container."""
        entry = runtimeapi.ContainerStats(
            attributes=runtimeapi.ContainerAttributes(id=id, metadata=self.runtime.containers[id].status.metadata),
            cpu=cpu_usage(seed),
            memory=memory_usage(seed),
            io=runtimeapi.IoUsage(timestamp=MEASURED, psi=psi(seed)),
            writable_layer=runtimeapi.FilesystemUsage(
                timestamp=MEASURED,
                fs_id=runtimeapi.FilesystemIdentifier(mountpoint=mountpoint),
                used_bytes=number(seed + 70),
                inodes_used=number(seed + 71),
            ),
        )
        self.runtime.fake_container_stats[id] = entry
        return entry

    def add_cgroups(self, pod: str, seed: int) -> None:
        """Add cAdvisor's statistics of the pod, its sandbox and its containers."""
        infos = self.cadvisor.containers_v2
        infos[f"/kubepods/podUID{pod}"] = testing.container_info(seed)
        infos[f"/kubepods/podUID{pod}/{pod}"] = testing.container_info(seed + 1000, pod, "ns", "POD")
        for i, (id, container) in enumerate(self.runtime.containers.items()):
            if container.sandbox_id == pod:
                name = container.status.metadata.name
                infos[f"/kubepods/podUID{pod}/{id}"] = testing.container_info(seed + 2000 + i, pod, "ns", name)


@pytest.fixture
def world() -> World:
    return World()


def volume(name: str, used: int) -> statsapi.VolumeStats:
    return statsapi.VolumeStats(name=name, used_bytes=used, inodes_used=used)


def by_name(found: list[statsapi.PodStats]) -> dict[str, statsapi.PodStats]:
    return {pod.pod_ref.name: pod for pod in found}


def test_list_pod_stats(world: World) -> None:
    pod = world.add_sandbox("pod0")
    world.add_stats(world.add_container(pod, "c0"), 100)
    world.add_stats(world.add_container(pod, "c1"), 200, mountpoint="/unknown")
    world.cadvisor.dir_fs["/unknown"] = testing.fs_info(0)
    world.add_cgroups("pod0", 10_000)
    world.analyzer.volumes = serverstats.PodVolumeStats([volume("local", 5)], [volume("claim", 1_000_000)])
    world.host.logs = {"ns/pod0": (1, 1), "ns/pod0/c0": (20, 2), "ns/pod0/c1": (300, 3)}
    world.host.etc_hosts = {"UIDpod0": (4000, 4)}
    (found,) = world.provider().list_pod_stats(CTX)
    assert found.pod_ref == statsapi.PodReference(name="pod0", namespace="ns", uid="UIDpod0")
    assert found.start_time == testing.CREATION_TIME
    # These values come from the pod's own cgroup and its sandbox.
    assert found.cpu is not None and found.cpu.usage_core_nano_seconds == 10_010
    assert found.memory is not None and found.memory.rss_bytes == 10_014
    assert found.swap is not None and found.swap.swap_usage_bytes == 10_015
    assert found.io is not None and found.io.psi is not None and found.io.psi.full.total == 10_201
    assert found.network is not None and (found.network.name, found.network.rx_bytes) == ("eth0", 11_021)
    assert found.process_stats == statsapi.ProcessStats(process_count=12_018 + 12_019)
    assert [volume.name for volume in found.volume_stats] == ["local", "claim"]
    assert found.ephemeral_storage is not None
    assert found.ephemeral_storage.used_bytes == 170 + 270 + 5 + 1 + 20 + 300 + 4000
    assert found.ephemeral_storage.inodes_used == 171 + 271 + 5 + 1 + 2 + 3 + 4
    assert found.ephemeral_storage.capacity_bytes == 1031
    # The statistics of cAdvisor replace those of the runtime.
    c0, c1 = found.containers
    assert (c0.name, c1.name) == ("c0", "c1")
    assert c0.cpu is not None and (c0.cpu.usage_core_nano_seconds, c0.cpu.usage_nano_cores) == (12_010, 12_011)
    assert c0.memory is not None and c0.memory.working_set_bytes == 12_013
    assert c0.io is not None and c0.io.psi is not None and c0.io.psi.full.total == 12_201
    assert c0.rootfs is not None and (c0.rootfs.used_bytes, c0.rootfs.capacity_bytes) == (170, 2031)
    assert c1.rootfs is not None and (c1.rootfs.used_bytes, c1.rootfs.capacity_bytes) == (270, 31)
    assert c0.logs is not None and (c0.logs.used_bytes, c0.logs.capacity_bytes) == (20, 1031)
    assert c0.start_time == testing.CREATION_TIME
    assert [options.recursive for _, options in world.cadvisor.calls] == [True], "cAdvisor is asked once"


def test_list_pod_disk_stats(world: World) -> None:
    pod = world.add_sandbox("pod0")
    world.add_stats(world.add_container(pod, "c0"), 100)
    world.add_stats(world.add_container(pod, "c1"), 200)
    world.add_cgroups("pod0", 10_000)
    world.analyzer.volumes = serverstats.PodVolumeStats([volume("local", 5)], [volume("claim", 1_000_000)])
    world.host.logs = {"ns/pod0": (1, 1), "ns/pod0/c0": (20, 2), "ns/pod0/c1": (300, 3)}
    (found,) = world.provider().list_pod_disk_stats(CTX)
    assert world.cadvisor.calls == [], "no control group is read"
    (everything,) = world.provider().list_pod_stats(CTX)
    assert found.pod_ref == everything.pod_ref
    assert found.volume_stats == everything.volume_stats
    assert found.ephemeral_storage == everything.ephemeral_storage
    parts = [[(c.name, c.rootfs, c.logs) for c in stats.containers] for stats in (found, everything)]
    assert parts[0] == parts[1] and len(parts[0]) == 2
    assert (found.memory, found.process_stats, found.containers[0].memory) == (None, None, None)


def test_what_runs_no_more_is_not_listed(world: World) -> None:
    running = world.add_sandbox("pod0")
    world.add_stats(world.add_container(running, "c0", running=False), 1)
    world.add_stats(world.add_container(running, "c0", attempt=1), 2)
    ended = world.add_sandbox("pod0", ready=False, id="before")
    world.add_stats(world.add_container(ended, "c0"), 3)
    world.add_sandbox("without containers")
    (found,) = world.provider().list_pod_stats(CTX)
    assert [container.memory.usage_bytes for container in found.containers if container.memory] == [64]


def test_without_cadvisor_pods_are_the_sum_of_their_containers(world: World) -> None:
    pod = world.add_sandbox("pod0")
    for name in ("c0", "c1"):
        entry = world.add_stats(world.add_container(pod, name), 100)
        entry.swap.CopyFrom(runtimeapi.SwapUsage(swap_usage_bytes=number(7), swap_available_bytes=number(8)))
    world.runtime.fake_container_stats["pod0.c1.0"].cpu.usage_nano_cores.value = 5
    (found,) = world.provider().list_pod_stats(CTX)
    assert found.cpu is not None and found.memory is not None and found.swap is not None and found.io is not None
    assert (found.cpu.usage_core_nano_seconds, found.cpu.usage_nano_cores) == (320, 5)
    assert (found.memory.working_set_bytes, found.memory.usage_bytes, found.memory.rss_bytes) == (322, 324, 0)
    assert (found.swap.swap_usage_bytes, found.swap.swap_available_bytes) == (14, 16)
    assert found.cpu.psi is None and found.io.psi is None, "pressure cannot be summed up"
    assert found.network is None and found.process_stats is None
    c0 = found.containers[0]
    assert c0.cpu is not None and c0.cpu.psi is not None and c0.cpu.psi.full.total == 150
    assert c0.io is not None and c0.io.psi is not None and c0.io.psi.some.total == 150
    assert c0.logs is None, "its directory is not there"


def test_runtime_that_tells_nothing_of_a_container(world: World) -> None:
    pod = world.add_sandbox("pod0")
    entry = world.add_stats(world.add_container(pod, "c0"), 100)
    for part in ("cpu", "memory", "io", "writable_layer"):
        entry.ClearField(part)
    (found,) = world.provider().list_pod_stats(CTX)
    now = testing.TIMESTAMP
    assert found.containers == [
        statsapi.ContainerStats(
            name="c0",
            start_time=testing.CREATION_TIME,
            cpu=statsapi.CPUStats(time=now, usage_core_nano_seconds=0, usage_nano_cores=0),
            memory=statsapi.MemoryStats(time=now, working_set_bytes=0, usage_bytes=0, rss_bytes=0),
            swap=statsapi.SwapStats(time=now, swap_usage_bytes=0, swap_available_bytes=0),
            io=statsapi.IOStats(time=now),
            rootfs=statsapi.FsStats(),
        )
    ]


def test_rate_that_cadvisor_does_not_know_yet(world: World) -> None:
    entry = world.add_stats(world.add_container(world.add_sandbox("pod0"), "c0"), 100)
    entry.cpu.usage_nano_cores.value = 77
    world.add_cgroups("pod0", 10_000)
    world.cadvisor.containers_v2["/kubepods/podUIDpod0/pod0.c0.0"].stats[0].cpu_inst = None
    (found,) = world.provider().list_pod_stats(CTX)
    cpu = found.containers[0].cpu
    assert cpu is not None and (cpu.usage_nano_cores, cpu.usage_core_nano_seconds) == (77, 12_010)


def test_file_system_that_cannot_be_looked_at_is_left_out(world: World) -> None:
    pod = world.add_sandbox("pod0")
    world.add_stats(world.add_container(pod, "c0"), 100, mountpoint="/not/there")
    world.add_stats(world.add_container(pod, "c1"), 200)
    provider = world.provider()
    for found in (provider.list_pod_stats(CTX), provider.list_pod_disk_stats(CTX)):
        figures = {
            stats.name: (stats.rootfs.used_bytes, stats.rootfs.capacity_bytes)
            for stats in found[0].containers
            if stats.rootfs is not None
        }
        assert figures == {"c0": (170, None), "c1": (270, 2031)}


@pytest.mark.parametrize("err", [LookupError("unknown container"), crierror.RemoteError(grpc.StatusCode.UNKNOWN, "no")])
def test_faults_are_raised(world: World, err: Exception) -> None:
    if isinstance(err, crierror.RemoteError):
        world.runtime.inject_error("ListContainerStats", err)
    else:
        world.cadvisor.err = err
    with pytest.raises(type(err)):
        world.provider().list_pod_stats(CTX)


def _tell_of_all(provider: stats.CRIStatsProvider) -> list[list[statsapi.PodStats]]:
    return [
        provider.list_pod_stats(CTX),
        provider.list_pod_disk_stats(CTX),
        provider.list_pod_cpu_and_memory_stats(CTX),
    ]


@failures
@pytest.mark.parametrize("from_cri", [False, True])
def test_pod_whose_figures_cannot_be_told_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, from_cri: bool, err: Exception
) -> None:
    for pod in ("bad", "good"):
        world.add_stats(world.add_container(world.add_sandbox(pod), f"c-{pod}"), 100)
        if from_cri:
            add_sandbox_stats(world, pod, 7)
    provider = world.provider(from_cri)

    def unless_bad(name: str) -> None:
        real = getattr(provider, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if "c-bad" in str(args):
                raise err
            return real(*args, **kwargs)

        monkeypatch.setattr(provider, name, call)

    for name in ("_make_container_stats", "_rootfs_stats", "_make_container_cpu_and_memory_stats"):
        unless_bad(name)
    for found in _tell_of_all(provider):
        containers = {one.pod_ref.name: [container.name for container in one.containers] for one in found}
        assert containers == {"bad": [], "good": ["c-good"]}


@failures
def test_storage_of_a_pod_that_cannot_be_told_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch, err: Exception
) -> None:
    for pod in ("bad", "good"):
        world.add_stats(world.add_container(world.add_sandbox(pod), f"c-{pod}"), 100)
    monkeypatch.setattr(world.analyzer, "get_pod_volume_stats", failing_once(lambda uid: None, err, "UIDbad"))
    found = world.provider().list_pod_stats(CTX)
    assert sorted(one.pod_ref.name for one in found) == ["bad", "good"]


# ---- Statistics from the runtime alone ----


def add_sandbox_stats(world: World, pod: str, seed: int) -> runtimeapi.LinuxPodSandboxStats:
    """Add the sandbox's statistics with those of its containers so far."""
    interface = runtimeapi.NetworkInterfaceUsage(name="eth0", rx_bytes=number(seed), tx_errors=number(seed + 1))
    containers = [
        entry
        for id, entry in world.runtime.fake_container_stats.items()
        if world.runtime.containers[id].sandbox_id == pod
    ]
    linux = runtimeapi.LinuxPodSandboxStats(
        cpu=cpu_usage(seed),
        memory=memory_usage(seed),
        io=runtimeapi.IoUsage(timestamp=MEASURED, psi=psi(seed)),
        network=runtimeapi.NetworkUsage(timestamp=MEASURED, default_interface=interface, interfaces=[interface]),
        process=runtimeapi.ProcessUsage(timestamp=MEASURED, process_count=number(9)),
        containers=containers,
    )
    attributes = runtimeapi.PodSandboxAttributes(id=pod)
    entry = runtimeapi.PodSandboxStats(attributes=attributes, linux=linux)
    world.runtime.fake_pod_sandbox_stats[pod] = entry
    return entry.linux


def test_list_pod_stats_strictly_from_cri(world: World) -> None:
    pod = world.add_sandbox("pod0")
    world.add_stats(world.add_container(pod, "c0"), 100)
    world.add_stats(world.add_container(pod, "ended", running=False), 200)
    add_sandbox_stats(world, pod, 5000)
    world.runtime.fake_pod_sandbox_stats["of none"] = runtimeapi.PodSandboxStats()
    world.add_cgroups("pod0", 10_000)
    world.host.logs = {"ns/pod0/c0": (20, 2)}
    (found,) = world.provider(from_cri=True).list_pod_stats(CTX)
    assert world.cadvisor.calls == []
    (c0,) = found.containers
    assert c0.cpu is not None and c0.cpu.usage_core_nano_seconds == 160
    assert found.cpu is not None and found.cpu.usage_core_nano_seconds == 5060
    assert found.cpu.psi is not None and found.cpu.psi.full.avg300 == 3.0
    assert found.memory is not None and found.memory.usage_bytes == 5062
    assert found.io is not None and found.io.psi is not None and found.io.psi.full.total == 5050
    assert found.network is not None and found.network.interfaces[0].rx_bytes == 5000
    assert (found.network.name, found.network.tx_errors, found.network.tx_bytes) == ("eth0", 5001, None)
    assert found.process_stats == statsapi.ProcessStats(process_count=9)
    assert found.ephemeral_storage is not None and found.ephemeral_storage.used_bytes == 190


def test_runtime_that_has_no_figures_of_pods(world: World) -> None:
    world.add_stats(world.add_container(world.add_sandbox("pod0"), "c0"), 100)
    world.add_cgroups("pod0", 10_000)
    provider = world.provider(from_cri=True)
    for listed in (provider.list_pod_stats, provider.list_pod_cpu_and_memory_stats):
        world.runtime.inject_error("ListPodSandboxStats", UNIMPLEMENTED)
        (found,) = listed(CTX)
        assert found.cpu is not None and found.cpu.usage_core_nano_seconds == 10_010
        world.runtime.inject_error("ListPodSandboxStats", crierror.RemoteError(grpc.StatusCode.UNKNOWN, "no"))
        with pytest.raises(crierror.RemoteError, match="no"):
            listed(CTX)


def test_list_pod_cpu_and_memory_stats_strictly_from_cri(world: World) -> None:
    pod = world.add_sandbox("pod0")
    for name in ("c0", "c1"):
        entry = world.add_stats(world.add_container(pod, name), 100)
        entry.swap.CopyFrom(runtimeapi.SwapUsage(swap_usage_bytes=number(7)))
    add_sandbox_stats(world, pod, 5000)
    (found,) = world.provider(from_cri=True).list_pod_cpu_and_memory_stats(CTX)
    assert found.memory is not None and found.memory.working_set_bytes == 5061
    assert found.swap == statsapi.SwapStats(
        time=found.containers[1].swap.time if found.containers[1].swap else None,
        swap_usage_bytes=14,
        swap_available_bytes=0,
    )
    assert found.network is None and found.process_stats is None and found.ephemeral_storage is None


# ---- CPU and memory ----


def test_list_pod_cpu_and_memory_stats(world: World) -> None:
    for pod in ("pod0", "pod1"):
        world.add_stats(world.add_container(world.add_sandbox(pod), "c"), 100)
    world.add_cgroups("pod0", 10_000)
    found = by_name(world.provider().list_pod_cpu_and_memory_stats(CTX))
    with_cgroups, without = found["pod0"], found["pod1"]
    assert with_cgroups.memory is not None and with_cgroups.memory.usage_bytes == 10_012
    assert with_cgroups.containers[0].memory is not None and with_cgroups.containers[0].memory.usage_bytes == 12_012
    assert without.memory is not None and without.memory.usage_bytes == 162
    assert without.containers[0].swap is not None and without.containers[0].swap.swap_usage_bytes == 0
    assert without.containers[0].memory is not None and without.containers[0].memory.rss_bytes == 0
    for one in found.values():
        assert one.network is None and one.io is None and one.ephemeral_storage is None and one.volume_stats == []
        assert one.containers[0].rootfs is None and one.containers[0].logs is None and one.containers[0].io is None


def pod_and_status(world: World, *names: str) -> tuple[v1.Pod, kubecontainer.PodStatus]:
    pod = v1.Pod(metadata=metav1.ObjectMeta(name="pod0", namespace="ns", uid=types.UID("UIDpod0")))
    containers = [kubecontainer.Status(name=name, created_at=testing.CREATION_TIME) for name in names]
    sandboxes = [world.runtime.sandboxes["pod0"]] if "pod0" in world.runtime.sandboxes else []
    return pod, kubecontainer.PodStatus(sandbox_statuses=sandboxes, container_statuses=containers)


def test_pod_cpu_and_memory_stats(world: World) -> None:
    """The pod's own statistics, and those of containers that the runtime does not know, come from the fallback."""
    sandbox = world.add_sandbox("pod0")
    for name in ("c0", "c1", "unknown"):
        world.add_stats(world.add_container(sandbox, name), 100)
    world.add_stats(world.add_container(world.add_sandbox("pod1"), "c0"), 200)
    world.runtime.fake_container_stats["pod0.c1.0"].ClearField("memory")
    memory = statsapi.MemoryStats(usage_bytes=1)
    world.fallback.found = statsapi.PodStats(
        cpu=statsapi.CPUStats(usage_core_nano_seconds=2),
        memory=memory,
        containers=[statsapi.ContainerStats(name=name, memory=memory) for name in ("c0", "c1", "c2")],
    )
    found = world.provider().pod_cpu_and_memory_stats(CTX, *pod_and_status(world, "c0", "c1"))
    assert (found.pod_ref.uid, found.start_time) == ("UIDpod0", testing.CREATION_TIME)
    assert found.memory is memory and found.cpu is not None
    usage = {container.name: container.memory and container.memory.usage_bytes for container in found.containers}
    assert usage == {"c0": 162, "c1": 1, "c2": 1}
    c1 = found.containers[1]
    assert c1.cpu is not None and c1.cpu.usage_core_nano_seconds == 160
    assert c1.swap is None, "nobody knows, so nothing is said"


def test_pod_cpu_and_memory_stats_from_cri(world: World) -> None:
    sandbox = world.add_sandbox("pod0")
    world.add_stats(world.add_container(sandbox, "c0"), 100)
    add_sandbox_stats(world, sandbox, 5000)
    provider = world.provider(from_cri=True)
    found = provider.pod_cpu_and_memory_stats(CTX, *pod_and_status(world, "c0"))
    assert found.memory is not None and found.memory.usage_bytes == 5062
    assert world.fallback.calls == 0
    world.runtime.inject_error("PodSandboxStats", UNIMPLEMENTED)
    provider.pod_cpu_and_memory_stats(CTX, *pod_and_status(world, "c0"))
    assert world.fallback.calls == 1


def test_pod_without_a_sandbox(world: World) -> None:
    with pytest.raises(LookupError, match=r'missing sandbox for pod "?pod0_ns\(UIDpod0\)'):
        world.provider().pod_cpu_and_memory_stats(CTX, *pod_and_status(world))


# ---- File systems ----


def file_system(mountpoint: str, seed: int) -> runtimeapi.FilesystemUsage:
    return runtimeapi.FilesystemUsage(
        timestamp=MEASURED,
        fs_id=runtimeapi.FilesystemIdentifier(mountpoint=mountpoint),
        used_bytes=number(seed),
        inodes_used=number(seed + 1),
    )


def test_image_fs_stats(world: World) -> None:
    usage = file_system(IMAGES, 500)
    world.images.file_systems = runtimeapi.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])
    image, containers = world.provider().image_fs_stats(CTX)
    assert image == statsapi.FsStats(
        time=testing.TIMESTAMP.replace(microsecond=0),
        available_bytes=2032,
        capacity_bytes=2031,
        used_bytes=500,
        inodes_free=2035,
        inodes=5400,
        inodes_used=501,
    )
    assert containers == image, "one file system for both"
    assert world.provider().image_fs_device(CTX) == "/dev/test"
    assert world.provider().container_fs_device(CTX) == "/dev/test"


def test_containers_on_a_file_system_of_their_own(world: World) -> None:
    world.cadvisor.dir_fs["/containers"] = testing.fs_info(0)
    world.images.file_systems = runtimeapi.ImageFsInfoResponse(
        image_filesystems=[file_system(IMAGES, 500)], container_filesystems=[file_system("/containers", 600)]
    )
    _, containers = world.provider().image_fs_stats(CTX)
    assert (containers.used_bytes, containers.capacity_bytes) == (600, 31)
    world.cadvisor.dir_fs["/containers"] = msgspec.structs.replace(testing.fs_info(0), device="/dev/layers")
    assert world.provider().image_fs_device(CTX) == "/dev/test"
    assert world.provider().container_fs_device(CTX) == "/dev/layers"
    # A runtime that does not mention layers keeps them with the images.
    world.images.file_systems = runtimeapi.ImageFsInfoResponse(image_filesystems=[file_system(IMAGES, 500)])
    assert world.provider().container_fs_device(CTX) == "/dev/test"


def test_runtime_without_file_systems(world: World) -> None:
    with pytest.raises(ValueError, match="imageFs information is unavailable"):
        world.provider().image_fs_stats(CTX)
    with pytest.raises(LookupError, match="imagefs device is not found"):
        world.provider().image_fs_device(CTX)


def test_images_that_are_not_on_this_machine(world: World) -> None:
    world.images.file_systems = runtimeapi.ImageFsInfoResponse(image_filesystems=[file_system("/not/there", 500)])
    with pytest.raises(FileNotFoundError):
        world.provider().image_fs_stats(CTX)
    nameless = runtimeapi.FilesystemUsage(used_bytes=number(1))
    world.images.file_systems = runtimeapi.ImageFsInfoResponse(image_filesystems=[nameless])
    image, _ = world.provider().image_fs_stats(CTX)
    assert (image.used_bytes, image.capacity_bytes) == (1, None)


# ---- CPU rates ----


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        (None, (10_000_000_000, 1), None),
        ((10_000_000_000, 0), (10_000_000_000, 1), 0),
        ((10_000_000_000, 0), (20_000_000_000, _NANOSECONDS), 10_000_000_000),
        ((67_983_588_375_722, 0), (68_172_016_162_105, _NANOSECONDS), 188_427_786_383),
        ((10_000_000_000, 1), (0, 2), None),
        ((10_000_000_000, 2), (20_000_000_000, 2), None),
    ],
    ids=["not cached yet", "no change", "used", "more than 100 processors", "reset to 0", "no time has gone by"],
)
def test_get_container_usage_nano_cores(
    world: World, before: tuple[int, int] | None, now: tuple[int, int], rate: int | None
) -> None:
    """Only the caller that updates the rates changes what the other callers see."""
    entry = world.add_stats(world.add_container(world.add_sandbox("pod0"), "c0"), 0)
    provider = world.provider()
    world.clock.set_time(testing.TIMESTAMP.fromtimestamp(0, testing.TIMESTAMP.tzinfo))

    def seen(updated: bool) -> int | None:
        listed = provider.list_pod_stats_and_update_cpu_nano_core_usage if updated else provider.list_pod_stats
        cpu = listed(CTX)[0].containers[0].cpu
        assert cpu is not None
        return cpu.usage_nano_cores

    for sample in filter(None, (before, now)):
        assert seen(updated=False) is None
        entry.cpu.usage_core_nano_seconds.value, entry.cpu.timestamp = sample
        found = seen(updated=True)
    assert found == rate
    assert seen(updated=False) == rate
    world.clock.step(602)
    provider.list_pod_stats(CTX)
    assert seen(updated=False) is None, "what is too old is forgotten"


@pytest.mark.parametrize("from_cri", [False, True])
@pytest.mark.parametrize("measured", [MEASURED - 10**12, MEASURED + 10**12, 2**63 - 1])
def test_nothing_is_remembered_of_another_time(world: World, from_cri: bool, measured: int) -> None:
    pod = world.add_sandbox("pod0")
    entry = world.add_stats(world.add_container(pod, "c0"), 0)
    entry.cpu.ClearField("usage_nano_cores")
    entry.cpu.timestamp = measured
    add_sandbox_stats(world, pod, 5000)
    provider = world.provider(from_cri)
    world.clock.set_time(testing.TIMESTAMP.fromtimestamp(MEASURED / _NANOSECONDS, testing.TIMESTAMP.tzinfo))
    provider.list_pod_stats_and_update_cpu_nano_core_usage(CTX)
    assert provider._cpu_usage_cache == {}


def test_rate_of_a_runtime_that_does_not_count(world: World) -> None:
    entry = world.add_stats(world.add_container(world.add_sandbox("pod0"), "c0"), 0)
    entry.cpu.ClearField("usage_core_nano_seconds")
    (found,) = world.provider().list_pod_stats_and_update_cpu_nano_core_usage(CTX)
    assert found.containers[0].cpu is not None and found.containers[0].cpu.usage_nano_cores is None
    entry.cpu.usage_nano_cores.value = 3
    (found,) = world.provider().list_pod_stats_and_update_cpu_nano_core_usage(CTX)
    assert found.containers[0].cpu is not None and found.containers[0].cpu.usage_nano_cores == 3


# ---- Names ----


@pytest.mark.parametrize(
    ("path", "id"),
    [
        ("/kubepods/burstable/pod2fc932ce-fdcc-454b-97bd-aadfdeb4c340/9be25294016e", "9be25294016e"),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-pod2f.slice/cri-containerd-aaefb9.scope", "aaefb9"),
        ("/kubepods.slice/kubepods-burstable.slice/kubepods-pod2f.slice/aaefb9.scope", "aaefb9"),
    ],
)
def test_extract_id_from_cgroup_path(path: str, id: str) -> None:
    assert extract_id_from_cgroup_path(path) == id


def sandbox(id: str, name: str, ready: bool, created: int) -> runtimeapi.PodSandbox:
    return runtimeapi.PodSandbox(
        id=id,
        metadata=runtimeapi.PodSandboxMetadata(name=name, namespace="ns"),
        state=runtimeapi.SANDBOX_READY if ready else runtimeapi.SANDBOX_NOTREADY,
        created_at=created,
    )


def test_remove_terminated_pods() -> None:
    found = remove_terminated_pods(
        [
            sandbox("a2", "a", True, 2),
            sandbox("a1", "a", False, 1),
            sandbox("b1", "b", False, 1),
            sandbox("c2", "c", False, 2),
            sandbox("c1", "c", False, 1),
        ]
    )
    assert {one.id for one in found} == {"a2", "b1", "c2"}


def test_remove_terminated_containers() -> None:
    states = {"a": runtimeapi.CONTAINER_RUNNING, "b": runtimeapi.CONTAINER_EXITED, "c": runtimeapi.CONTAINER_RUNNING}
    containers = [runtimeapi.Container(id=id, state=state) for id, state in states.items()]
    assert [container.id for container in remove_terminated_containers(containers)] == ["a", "c"]


def test_mounts_of_systemd_are_no_containers(world: World) -> None:
    world.add_stats(world.add_container(world.add_sandbox("pod0"), "c0"), 100)
    newer = testing.container_info(30_000, "pod0", "ns", "c0")
    newer.spec.creation_time += timedelta(seconds=1)
    world.cadvisor.containers_v2["/system.slice/pod0.c0.0.mount"] = newer
    (found,) = world.provider().list_pod_stats(CTX)
    assert found.containers[0].memory is not None and found.containers[0].memory.usage_bytes == 162


def test_cgroup_of_nobody(world: World) -> None:
    world.cadvisor.containers_v2["/other"] = cadvisorapiv2.ContainerInfo()
    assert world.provider().list_pod_stats(CTX) == []
