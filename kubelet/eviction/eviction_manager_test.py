"""Test the eviction manager.

Go: pkg/kubelet/eviction/eviction_manager_test.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from kubelet import eviction, lifecycle
from kubelet import types as kubetypes
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction import eviction_manager, memory_threshold_notifier
from kubelet.eviction import testing as evictiontesting
from kubelet.eviction.testing import amount, new_pod, threshold
from pkg import features, golang
from pkg.api.core import v1
from pkg.apimachinery.api.testing import quantities
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime.testing import failing_once, failures, raising
from pkg.client_go.tools.record.testing import FakeRecorder
from pkg.component_base.metrics import testing as metricstesting

Signal = evictionapi.Signal
LOW, HIGH = -1, 1
MINUTE = 60.0
NODE = v1.ObjectReference(api_version="v1", kind="Node", name="node")

Pods = dict[str, tuple[v1.Pod, statsapi.PodStats]]


@pytest.fixture(autouse=True)
def _untouched_gates() -> Iterator[None]:
    yield
    features.feature_gate.reset()


def memory_summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
    """Return a node and a cgroup of all pods, both with half of their memory left."""
    memory = statsapi.MemoryStats(available_bytes=amount(available), working_set_bytes=amount(available))
    pods = statsapi.ContainerStats(name=statsapi.SYSTEM_CONTAINER_PODS, memory=memory)
    return statsapi.Summary(node=statsapi.NodeStats(memory=memory, system_containers=[pods]), pods=list(stats))


def pid_summary(running: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
    """Return a node that can have 2000 processes."""
    rlimit = statsapi.RlimitStats(max_pid=2000, num_of_running_processes=amount(running))
    return statsapi.Summary(node=statsapi.NodeStats(rlimit=rlimit), pods=list(stats))


def disk_summary(which: str, kind: str) -> Callable[[str, Iterable[statsapi.PodStats]], statsapi.Summary]:
    """Return a function that makes summaries with three file systems, of which `which` varies.

    kind is "bytes" or "inodes".
    """

    def fs(name: str, available: str) -> statsapi.FsStats:
        left = amount(available if name == which else "16Gi")
        if kind == "bytes":
            return statsapi.FsStats(available_bytes=left, capacity_bytes=2 * left)
        return statsapi.FsStats(inodes_free=left, inodes=2 * left)

    def summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
        runtime = statsapi.RuntimeStats(image_fs=fs("imagefs", available), container_fs=fs("containerfs", available))
        return statsapi.Summary(node=statsapi.NodeStats(fs=fs("nodefs", available), runtime=runtime), pods=list(stats))

    return summary


class World:
    """Run a manager with fakes."""

    def __init__(
        self,
        thresholds: list[evictionapi.Threshold],
        pods: Pods,
        summary: Callable[[str, Iterable[statsapi.PodStats]], statsapi.Summary],
        isolation: bool = False,
        dedicated_image_fs: bool = False,
        dedicated_container_fs: bool = False,
    ) -> None:
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.pods = pods
        self.summary = summary
        self.clock = FakeClock()
        self.killer = evictiontesting.FakePodKiller()
        self.disks = evictiontesting.FakeDiskInfoProvider(dedicated_image_fs, dedicated_container_fs)
        self.provider = evictiontesting.FakeSummaryProvider()
        self.gc = evictiontesting.FakeDiskGC(self.provider)
        self.recorder = FakeRecorder(100)
        self.manager = eviction.ManagerImpl(
            self.provider,
            eviction.Config(
                pressure_transition_period=5 * MINUTE, max_pod_grace_period_seconds=5, thresholds=thresholds
            ),
            self.killer.kill_pod_now,
            self.gc,
            self.gc,
            self.recorder,
            NODE,
            self.clock,
            isolation,
        )

    def active_pods(self) -> list[v1.Pod]:
        return [pod for pod, _ in self.pods.values()]

    def make(self, available: str) -> statsapi.Summary:
        return self.summary(available, [stats for _, stats in self.pods.values()])

    def synchronize(self, available: str, after: float = 0.0) -> list[str]:
        """Run the manager's check, and return the names of the pods that were killed."""
        self.clock.step(after)
        self.provider.result = self.make(available)
        self.killer.killed.clear()
        evicted = self.manager.synchronize(self.ctx, self.disks, self.active_pods)
        assert [pod.metadata.name for pod in evicted] == self.killer.killed
        return list(self.killer.killed)

    def under_pressure(self) -> list[str]:
        found = {
            "memory": self.manager.is_under_memory_pressure(),
            "disk": self.manager.is_under_disk_pressure(),
            "pid": self.manager.is_under_pid_pressure(),
        }
        return [name for name, pressure in found.items() if pressure]

    def admits(self) -> list[str]:
        """Return the QoS classes of pods that are admitted now."""
        request = quantities(memory="100Mi")
        candidates = {
            "burstable": new_pod("burstable", 0, request),
            "best effort": new_pod("best-effort", 0),
        }
        return [name for name, pod in candidates.items() if self.admit(pod).admit]

    def admit(self, pod: v1.Pod) -> lifecycle.PodAdmitResult:
        return self.manager.admit(lifecycle.PodAdmitAttributes(pod))


def pod_table(stats: Callable[..., statsapi.PodStats], *rows: tuple[Any, ...]) -> Pods:
    """Return pods from rows of name, priority, requested and limited memory, and statistics."""
    made: Pods = {}
    for name, priority, request, limit, *figures in rows:
        pod = new_pod(name, priority, quantities(memory=request), quantities(memory=limit))
        made[name] = pod, stats(pod, *figures)
    return made


def memory_pods() -> Pods:
    return pod_table(
        evictiontesting.memory_stats,
        ("guaranteed-low-priority-high-usage", LOW, "1Gi", "1Gi", "900Mi"),
        ("burstable-below-requests", 0, "100Mi", "1Gi", "50Mi"),
        ("burstable-above-requests", 0, "100Mi", "1Gi", "400Mi"),
        ("best-effort-high-priority-high-usage", HIGH, "", "", "400Mi"),
        ("best-effort-low-priority-low-usage", LOW, "", "", "100Mi"),
    )


def pid_pods() -> Pods:
    return pod_table(
        evictiontesting.process_stats,
        ("high-priority-high-usage", HIGH, "", "", 900),
        ("default-priority-low-usage", 0, "", "", 100),
        ("default-priority-medium-usage", 0, "", "", 400),
        ("low-priority-high-usage", LOW, "", "", 600),
        ("low-priority-low-usage", LOW, "", "", 50),
    )


def disk_pods() -> Pods:
    return pod_table(
        evictiontesting.disk_stats,
        ("low-priority-high-usage", LOW, "1Gi", "1Gi", "900Mi", "0", "0"),
        ("below-requests", 0, "100Mi", "1Gi", "0", "50Mi", "0"),
        ("above-requests", 0, "100Mi", "1Gi", "400Mi", "0", "0"),
        ("high-priority-high-usage", HIGH, "", "", "0", "0", "400Mi"),
        ("low-priority-low-usage", LOW, "", "", "100Mi", "0", "0"),
    )


def inode_pods() -> Pods:
    return pod_table(
        evictiontesting.inode_stats,
        ("low-priority-high-usage", LOW, "1Gi", "1Gi", "900Mi", "0", "0"),
        ("below-requests", 0, "100Mi", "1Gi", "50Mi", "0", "0"),
        ("low-priority-low-usage", LOW, "", "", "100Mi", "0", "0"),
    )


@dataclass
class Pressure:
    """Describe a kind of pressure: how the test causes it, and what follows."""

    condition: str
    world: Callable[[], World]
    none: str
    soft: str
    hard: str
    victim: str
    # Pods of these QoS classes are still admitted under this pressure.
    admits: list[str]


def _memory() -> World:
    thresholds = [threshold(Signal.MEMORY_AVAILABLE, "1Gi"), threshold(Signal.MEMORY_AVAILABLE, "2Gi", 2 * MINUTE)]
    return World(thresholds, memory_pods(), memory_summary)


def _allocatable() -> World:
    signal = Signal.ALLOCATABLE_MEMORY_AVAILABLE
    return World([threshold(signal, "1Gi"), threshold(signal, "2Gi", 2 * MINUTE)], memory_pods(), memory_summary)


def _pid() -> World:
    thresholds = [threshold(Signal.PID_AVAILABLE, "1200"), threshold(Signal.PID_AVAILABLE, "1500", 2 * MINUTE)]
    return World(thresholds, pid_pods(), pid_summary)


def _disk(signal: Signal, which: str, pods: Callable[[], Pods], kind: str, **disks: bool) -> Callable[[], World]:
    thresholds = [threshold(signal, "1Gi"), threshold(signal, "2Gi", 2 * MINUTE)]
    return lambda: World(list(thresholds), pods(), disk_summary(which, kind), **disks)


_BEST_EFFORT = "best-effort-low-priority-low-usage"
_BURSTABLE_ONLY = ["burstable"]
_NODE_FS, _IMAGE_FS = Signal.NODE_FS_AVAILABLE, Signal.IMAGE_FS_AVAILABLE
_NODE_INODES, _IMAGE_INODES = Signal.NODE_FS_INODES_FREE, Signal.IMAGE_FS_INODES_FREE
_DISK_VICTIM = "low-priority-high-usage"
_DISK_FIGURES: tuple[str, str, str, str, list[str]] = ("16Gi", "1.5Gi", "750Mi", _DISK_VICTIM, [])
_APART = {"dedicated_image_fs": True}
_SPLIT = {"dedicated_image_fs": True, "dedicated_container_fs": True}

PRESSURES = [
    pytest.param(Pressure("memory", _memory, "3Gi", "1500Mi", "500Mi", _BEST_EFFORT, _BURSTABLE_ONLY), id="memory"),
    pytest.param(
        Pressure("memory", _allocatable, "3Gi", "1500Mi", "500Mi", _BEST_EFFORT, _BURSTABLE_ONLY), id="memory of pods"
    ),
    pytest.param(Pressure("pid", _pid, "300", "700", "1200", "low-priority-high-usage", []), id="pid"),
    pytest.param(Pressure("disk", _disk(_NODE_FS, "nodefs", disk_pods, "bytes"), *_DISK_FIGURES), id="disk, one fs"),
    pytest.param(
        Pressure("disk", _disk(_IMAGE_FS, "imagefs", disk_pods, "bytes", **_APART), *_DISK_FIGURES),
        id="disk, imagefs",
    ),
    pytest.param(
        Pressure("disk", _disk(_NODE_FS, "containerfs", disk_pods, "bytes", **_SPLIT), *_DISK_FIGURES),
        id="disk, containerfs",
    ),
    pytest.param(
        Pressure("disk", _disk(_NODE_INODES, "nodefs", inode_pods, "inodes"), *_DISK_FIGURES), id="inodes, no imagefs"
    ),
    pytest.param(
        Pressure("disk", _disk(_IMAGE_INODES, "imagefs", inode_pods, "inodes", **_APART), *_DISK_FIGURES),
        id="inodes, imagefs",
    ),
    pytest.param(
        Pressure("disk", _disk(_NODE_INODES, "nodefs", inode_pods, "inodes", **_SPLIT), *_DISK_FIGURES),
        id="inodes, containerfs",
    ),
]


@pytest.mark.parametrize("case", PRESSURES)
def test_pressure(case: Pressure) -> None:
    world = case.world()
    everybody = ["burstable", "best effort"]
    assert (world.synchronize(case.none), world.under_pressure()) == ([], [])
    assert world.admits() == everybody

    # The condition shows immediately that the soft threshold is met. Pods get the threshold's grace period.
    assert (world.synchronize(case.soft, after=MINUTE), world.under_pressure()) == ([], [case.condition])
    assert world.admits() == case.admits
    assert world.synchronize(case.soft, after=3 * MINUTE) == [case.victim]
    assert (world.killer.evict, world.killer.grace_period_override) == (True, 5)

    assert (world.synchronize(case.none, after=20 * MINUTE), world.under_pressure()) == ([], [])

    assert (world.synchronize(case.hard, after=MINUTE), world.under_pressure()) == ([case.victim], [case.condition])
    assert world.killer.grace_period_override == 1
    assert world.admits() == case.admits

    # When the pressure is gone, the condition stays for the transition period.
    assert (world.synchronize(case.none, after=MINUTE), world.under_pressure()) == ([], [case.condition])
    assert world.admits() == case.admits
    assert (world.synchronize(case.none, after=5 * MINUTE), world.under_pressure()) == ([], [])
    assert world.admits() == everybody


@dataclass
class Told:
    """Describe what is reported about an evicted pod."""

    world: Callable[[], World]
    available: str
    victim: str
    message: str
    annotations: dict[str, str]


def _told_memory() -> World:
    rows = ("below-requests", None, "1Gi", "1Gi", "900Mi"), ("above-requests", None, "100Mi", "1Gi", "700Mi")
    pods = pod_table(evictiontesting.memory_stats, *rows)
    return World([threshold(Signal.MEMORY_AVAILABLE, "2Gi")], pods, memory_summary)


def _told_pid() -> World:
    pods = pod_table(evictiontesting.process_stats, ("pod1", LOW, "", "", 2), ("pod2", 0, "", "", 500))
    return World([threshold(Signal.PID_AVAILABLE, "1200")], pods, pid_summary)


def _told_disk(signal: Signal, which: str, **disks: bool) -> Callable[[], World]:
    pods: Pods = {}
    for name, request, used in (("below-requests", "1Gi", "900Mi"), ("above-requests", "100Mi", "700Mi")):
        pod = new_pod(name, 7, quantities(ephemeral_storage=request))
        pods[name] = pod, evictiontesting.disk_stats(pod, used, "0", "0")
    return lambda: World([threshold(signal, "2Gi")], pods, disk_summary(which, "bytes"), **disks)


_DISK_MESSAGE = (
    "The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, available: 1536Mi. "
    "Container above-requests was using 700Mi, request is 100Mi, has larger consumption of ephemeral-storage. "
)


def _annotations(starved: str, container: str = "", usage: str = "") -> dict[str, str]:
    return {"offending_containers": container, "offending_containers_usage": usage, "starved_resource": starved}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Told(
                _told_memory,
                "1500Mi",
                "above-requests",
                "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1500Mi. "
                "Container above-requests was using 700Mi, request is 100Mi, has larger consumption of memory. ",
                _annotations("memory", "above-requests", "700Mi"),
            ),
            id="memory",
        ),
        pytest.param(
            Told(
                _told_pid,
                "1500",
                "pod1",
                "The node was low on resource: pids. Threshold quantity: 1200, available: 500. ",
                _annotations("pids"),
            ),
            id="pid",
        ),
        *(
            pytest.param(
                Told(
                    _told_disk(signal, which, **disks),
                    "1.5Gi",
                    "above-requests",
                    _DISK_MESSAGE,
                    _annotations("ephemeral-storage", "above-requests", "700Mi"),
                ),
                id=f"{which}",
            )
            for signal, which, disks in (
                (_NODE_FS, "nodefs", {}),
                (_IMAGE_FS, "imagefs", {"dedicated_image_fs": True}),
                (_NODE_FS, "containerfs", _SPLIT),
            )
        ),
    ],
)
def test_pod_status_and_event(case: Told) -> None:
    world = case.world()
    assert world.synchronize(case.available) == [case.victim]
    assert world.killer.status_fn is not None and world.killer.pod is not None
    world.killer.pod.metadata.generation = 3
    status = v1.PodStatus()
    world.killer.status_fn(status)
    assert (status.phase, status.reason, status.message) == (v1.POD_FAILED, "Evicted", case.message)
    (condition,) = status.conditions
    assert (condition.type, condition.status, condition.reason) == ("DisruptionTarget", "True", "TerminationByKubelet")
    assert (condition.message, condition.observed_generation) == (case.message, 3)
    again = v1.deepcopy(status)
    world.killer.status_fn(again)
    assert again == status and again.conditions[0] is not condition
    events = world.recorder.drain()
    resource = case.annotations["starved_resource"]
    assert events[0] == f"Warning EvictionThresholdMet Attempting to reclaim {resource}"
    assert events[1].startswith(f"Warning Evicted {case.message}")
    for key, value in case.annotations.items():
        assert f"{key}:{value}" in events[1]


@pytest.mark.parametrize(
    ("conditions", "admitted"),
    [
        pytest.param([], ["guaranteed", "burstable", "best-effort", "tolerating", "static"], id="none"),
        pytest.param([v1.NODE_MEMORY_PRESSURE], ["guaranteed", "burstable", "tolerating", "static"], id="memory"),
        pytest.param([v1.NODE_MEMORY_PRESSURE, v1.NODE_DISK_PRESSURE], ["static"], id="memory and disk"),
        pytest.param([v1.NODE_PID_PRESSURE], ["static"], id="pid"),
    ],
)
def test_admit_under_node_conditions(conditions: list[str], admitted: list[str]) -> None:
    request = quantities(cpu="100m", memory="1Gi")
    tolerating, static = new_pod("tolerating"), new_pod("static")
    tolerating.spec.tolerations = [v1.Toleration(key=v1.TAINT_NODE_MEMORY_PRESSURE, operator="Exists")]
    static.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE
    pods = [
        new_pod("guaranteed", 0, request, request),
        new_pod("burstable", 0, request),
        new_pod("best-effort", 0),
        tolerating,
        static,
    ]
    world = World([], {}, memory_summary)
    world.manager._node_conditions = conditions
    results = {pod.metadata.name: world.admit(pod) for pod in pods}
    assert [name for name, result in results.items() if result.admit] == admitted
    for result in results.values():
        if not result.admit:
            message = f"The node had condition: [{' '.join(conditions)}]. "
            assert (result.reason, result.message) == ("Evicted", message)


def test_min_reclaim() -> None:
    thresholds = [threshold(Signal.MEMORY_AVAILABLE, "1Gi", min_reclaim="500Mi")]
    world = World(thresholds, memory_pods(), memory_summary)
    assert (world.synchronize("2Gi"), world.under_pressure()) == ([], [])
    assert (world.synchronize("500Mi", after=MINUTE), world.under_pressure()) == ([_BEST_EFFORT], ["memory"])
    # More is left than the threshold demands, but the minimum is not yet reclaimed.
    assert (world.synchronize("1.2Gi", after=MINUTE), world.under_pressure()) == ([_BEST_EFFORT], ["memory"])
    assert (world.synchronize("2Gi", after=MINUTE), world.under_pressure()) == ([], ["memory"])
    assert (world.synchronize("2Gi", after=5 * MINUTE), world.under_pressure()) == ([], [])
    # After the shortage is over, a quantity between the two values is no reason to evict.
    assert (world.synchronize("1.2Gi", after=MINUTE), world.under_pressure()) == ([], [])


@pytest.mark.parametrize(
    ("signal", "which", "disks", "calls"),
    [
        pytest.param(_NODE_FS, "nodefs", {}, ["containers", "images"], id="one file system"),
        pytest.param(
            _IMAGE_FS, "imagefs", {"dedicated_image_fs": True}, ["containers", "images"], id="images and layers apart"
        ),
        pytest.param(_NODE_FS, "nodefs", _SPLIT, ["containers"], id="only images apart, root file system"),
        pytest.param(_IMAGE_FS, "imagefs", _SPLIT, ["images"], id="only images apart, theirs"),
    ],
)
def test_node_reclaim_funcs(signal: Signal, which: str, disks: dict[str, bool], calls: list[str]) -> None:
    thresholds = [threshold(signal, "1Gi", min_reclaim="500Mi")]
    world = World(thresholds, disk_pods(), disk_summary(which, "bytes"), **disks)
    assert (world.synchronize("16Gi"), world.gc.calls) == ([], [])

    # Removing garbage is enough.
    world.gc.summary_after_gc = world.make("16Gi")
    assert (world.synchronize("750Mi", after=MINUTE), world.gc.calls) == ([], calls)
    assert world.under_pressure() == ["disk"]
    world.gc.calls.clear()
    assert (world.synchronize("16Gi", after=20 * MINUTE), world.under_pressure(), world.gc.calls) == ([], [], [])

    # Removing garbage is not enough: less than the minimum was reclaimed.
    world.gc.summary_after_gc = world.make("1.2Gi")
    assert (world.synchronize("750Mi", after=MINUTE), world.gc.calls) == ([_DISK_VICTIM], calls)

    # The manager does not give up when garbage cannot be removed.
    world.gc.calls.clear()
    world.gc.err = OSError("cannot remove")
    assert (world.synchronize("750Mi", after=MINUTE), world.gc.calls) == ([_DISK_VICTIM], calls)


def test_nothing_can_be_reclaimed_from_the_root_file_system_without_images() -> None:
    world = World([threshold(_NODE_FS, "1Gi")], disk_pods(), disk_summary("nodefs", "bytes"), dedicated_image_fs=True)
    # On this file system images and layers do not count, only volumes and logs.
    assert (world.synchronize("750Mi"), world.gc.calls) == (["below-requests"], [])


def _static(pod: v1.Pod) -> None:
    pod.metadata.annotations[kubetypes.CONFIG_SOURCE_ANNOTATION_KEY] = kubetypes.FILE_SOURCE


def _mirror(pod: v1.Pod) -> None:
    pod.metadata.annotations[kubetypes.CONFIG_MIRROR_ANNOTATION_KEY] = "hash"


def _priority(pod: v1.Pod) -> None:
    pod.spec.priority = 2_000_000_000


@pytest.mark.parametrize("make_critical", [_static, _mirror, _priority])
def test_critical_pods_are_not_evicted(make_critical: Callable[[v1.Pod], None]) -> None:
    pods = pod_table(
        evictiontesting.memory_stats, ("critical", 0, "1Gi", "1Gi", "1100Mi"), ("other", 0, "1Gi", "1Gi", "800Mi")
    )
    make_critical(pods["critical"][0])
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], pods, memory_summary)
    assert world.synchronize("500Mi") == ["other"]
    del world.pods["other"]
    assert (world.synchronize("500Mi", after=MINUTE), world.under_pressure()) == ([], ["memory"])


def _volume(size_limit: str) -> v1.Volume:
    limit = quantities(limit=size_limit).get("limit")
    return v1.Volume(name="data", empty_dir=v1.EmptyDirVolumeSource(size_limit=limit))


@dataclass
class Limits:
    """Describe a pod with limits, and its usage."""

    limit: str = ""
    size_limit: str = ""
    rootfs: str = "0"
    logs: str = "0"
    volume: str = "0"
    whole_pod: str = "0"
    dedicated_image_fs: bool = False
    # The message is None for a pod that is not evicted.
    message: str | None = None
    signal: str = ""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Limits("1Gi", "1Gi", "400Mi", "400Mi", "900Mi", "1Gi"), id="all within the limits"),
        pytest.param(Limits(rootfs="9Gi", logs="9Gi", volume="9Gi", whole_pod="27Gi"), id="no limits"),
        pytest.param(Limits(size_limit="0", volume="9Gi"), id="a limit of zero is none"),
        pytest.param(
            Limits(
                size_limit="1Gi",
                volume="2Gi",
                message='Usage of EmptyDir volume "data" exceeds the limit "1Gi". ',
                signal="emptydirfs.limit",
            ),
            id="empty dir",
        ),
        pytest.param(
            Limits(
                "1Gi",
                rootfs="2Gi",
                message='Container pod exceeded its local ephemeral storage limit "1Gi". ',
                signal="ephemeralcontainerfs.limit",
            ),
            id="layer",
        ),
        pytest.param(Limits("1Gi", rootfs="2Gi", dedicated_image_fs=True), id="layer on another file system"),
        pytest.param(
            Limits(
                "1Gi",
                logs="2Gi",
                dedicated_image_fs=True,
                message='Container pod exceeded its local ephemeral storage limit "1Gi". ',
                signal="ephemeralcontainerfs.limit",
            ),
            id="log",
        ),
        pytest.param(
            Limits(
                "1Gi",
                volume="600Mi",
                logs="600Mi",
                whole_pod="1200Mi",
                message="Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ",
                signal="ephemeralpodfs.limit",
            ),
            id="pod",
        ),
    ],
)
def test_storage_limit_evictions(case: Limits) -> None:
    pod = new_pod("pod", 0, limits=quantities(ephemeral_storage=case.limit), volumes=[_volume(case.size_limit)])
    stats = evictiontesting.disk_stats(pod, case.rootfs, case.logs, case.volume)
    stats.ephemeral_storage = statsapi.FsStats(used_bytes=amount(case.whole_pod))
    world = World(
        [],
        {"pod": (pod, stats)},
        disk_summary("nodefs", "bytes"),
        isolation=True,
        dedicated_image_fs=case.dedicated_image_fs,
    )
    before = _evictions(case.signal)
    preview = [limit.message for limit in _preview(world).broken_limits]
    if case.message is None:
        assert (world.synchronize("16Gi"), preview) == ([], [])
        return
    assert (world.synchronize("16Gi"), preview) == (["pod"], [case.message])
    assert world.killer.grace_period_override == 1
    assert world.recorder.drain() == [f"Warning Evicted {case.message}"]
    assert world.killer.status_fn is not None
    status = v1.PodStatus()
    world.killer.status_fn(status)
    assert (status.reason, status.message, status.conditions) == ("Evicted", case.message, [])
    assert _evictions(case.signal) == before + 1


def _preview(world: World) -> eviction.Preview:
    world.manager._pod_func = world.active_pods
    world.manager._detect_file_systems(world.ctx, world.disks)
    world.provider.result = world.make("16Gi")
    return world.manager.preview(world.ctx)


def _evictions(signal: str) -> float:
    from kubelet import metrics

    return metricstesting.value(metrics.EVICTIONS.labels(signal))


def test_every_pod_over_its_limits_goes_and_nobody_else_then() -> None:
    pods: Pods = {}
    for name, used in (("first", "2Gi"), ("second", "100Mi"), ("third", "3Gi")):
        pod = new_pod(name, 0, volumes=[_volume("1Gi")])
        pods[name] = pod, evictiontesting.disk_stats(pod, "0", "0", used)
    world = World([threshold(_NODE_FS, "1Gi")], pods, disk_summary("nodefs", "bytes"), isolation=True)
    assert (world.synchronize("500Mi"), world.gc.calls) == (["first", "third"], [])
    assert world.under_pressure() == ["disk"]


def test_figures_that_are_not_new_are_no_reason_to_evict_again() -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    observed = world.clock.now()

    def summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
        made = memory_summary(available, stats)
        assert made.node.memory is not None
        made.node.memory.time = observed
        return made

    world.summary = summary
    assert world.synchronize("500Mi") == [_BEST_EFFORT]
    assert (world.synchronize("500Mi", after=MINUTE), world.under_pressure()) == ([], ["memory"])
    observed += timedelta(seconds=MINUTE)
    assert world.synchronize("500Mi", after=MINUTE) == [_BEST_EFFORT]


@pytest.mark.parametrize("hours", [-1, 1])
def test_clock_that_is_set_changes_no_period(hours: int) -> None:
    """A clock change affects no grace period and no transition period, and evictions continue."""
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi", 2 * MINUTE)], memory_pods(), memory_summary)

    def summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
        made = memory_summary(available, stats)
        assert made.node.memory is not None
        made.node.memory.time = world.clock.now()
        return made

    world.summary = summary
    assert world.synchronize("500Mi") == []
    world.clock.shift(hours * 3600)
    assert world.synchronize("500Mi", after=MINUTE) == []
    assert world.synchronize("500Mi", after=MINUTE) == [_BEST_EFFORT]
    world.clock.shift(hours * 3600)
    assert world.synchronize("500Mi", after=MINUTE) == [_BEST_EFFORT]
    world.clock.shift(hours * 3600)
    assert (world.synchronize("2Gi", after=4 * MINUTE), world.under_pressure()) == ([], ["memory"])
    assert (world.synchronize("2Gi", after=MINUTE), world.under_pressure()) == ([], [])


def test_memory_comes_before_all_else() -> None:
    pods = memory_pods()

    def summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
        made = memory_summary("500Mi", stats)
        made.node.fs = statsapi.FsStats(available_bytes=1, capacity_bytes=2)
        return made

    world = World([threshold(_NODE_FS, "1Gi"), threshold(Signal.MEMORY_AVAILABLE, "1Gi")], pods, summary)
    assert (world.synchronize("500Mi"), world.gc.calls) == ([_BEST_EFFORT], [])
    assert world.under_pressure() == ["memory", "disk"]


@pytest.mark.parametrize(
    ("err", "evicted"),
    [
        pytest.param(TimeoutError("timeout waiting to kill pod"), [_BEST_EFFORT], id="its worker goes on"),
    ],
)
def test_a_pod_that_does_not_end_in_time_counts_as_evicted(err: Exception, evicted: list[str]) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    world.killer.err = err
    assert world.synchronize("500Mi") == evicted


@pytest.mark.parametrize(
    ("longest", "own", "expected"),
    [(5, 3, 3), (5, 30, 5), (5, None, 5), (0, 30, 0), (-1, 30, None)],
)
def test_the_grace_period_of_a_soft_threshold(longest: int, own: int | None, expected: int | None) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi", 1)], memory_pods(), memory_summary)
    world.manager._config.max_pod_grace_period_seconds = longest
    for pod in world.active_pods():
        pod.spec.termination_grace_period_seconds = own
    assert world.synchronize("500Mi") == []
    assert world.synchronize("500Mi", after=MINUTE) == [_BEST_EFFORT]
    assert world.killer.grace_period_override == expected


def test_nobody_to_evict_and_no_figures() -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], {}, memory_summary)
    assert (world.synchronize("500Mi"), world.under_pressure()) == ([], ["memory"])
    world.provider.err = OSError("the runtime is away")
    assert (world.synchronize("500Mi", after=20 * MINUTE), world.under_pressure()) == ([], ["memory"])


def test_file_systems_that_cannot_be_told_apart_yet_are_asked_for_again() -> None:
    world = World([threshold(_NODE_FS, "1Gi")], disk_pods(), disk_summary("nodefs", "bytes"))
    world.disks.err = LookupError("imagefs device is not found")
    with pytest.raises(eviction_manager.EvictionError, match="failed to get HasDedicatedImageFs: imagefs device"):
        world.synchronize("500Mi")
    world.disks.err = None
    world.disks.container_fs_err = ValueError("no containerfs label for configured runtime")
    assert world.synchronize("500Mi") == [_DISK_VICTIM]


def test_it_is_asked_where_layers_are_until_that_is_known() -> None:
    world = World([threshold(_NODE_FS, "1Gi")], disk_pods(), disk_summary("nodefs", "bytes"), **_SPLIT)
    world.disks.container_fs_err = OSError("the runtime restarts")
    assert world.synchronize("16Gi") == []
    # The known layout of the images stays.
    world.disks.err, world.disks.container_fs_err = OSError("the runtime restarts"), None
    assert world.synchronize("16Gi") == []
    world.disks.err = None
    assert (world.synchronize("750Mi", after=MINUTE), world.gc.calls) == ([_DISK_VICTIM], ["containers"])


def test_a_split_file_system_needs_its_gate() -> None:
    features.feature_gate.set_from_map({features.KUBELET_SEPARATE_DISK_GC: False})
    world = World([threshold(_NODE_FS, "1Gi")], disk_pods(), disk_summary("nodefs", "bytes"), **_SPLIT)
    message = "KubeletSeparateDiskGC is turned off but we still have a split filesystem"
    with pytest.raises(eviction_manager.EvictionError, match=message):
        world.synchronize("500Mi")


def test_without_thresholds_and_limits_nobody_looks() -> None:
    world = World([], memory_pods(), memory_summary)
    world.disks.err = AssertionError("asked")
    assert world.synchronize("1") == []


def test_pods_are_measured_only_when_it_matters() -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary, isolation=True)
    world.synchronize("2Gi")
    assert world.provider.pods_measured == 0
    world.synchronize("500Mi")
    assert world.provider.pods_measured == 1
    limited = new_pod("limited", volumes=[_volume("1Gi")])
    world.pods["limited"] = limited, evictiontesting.disk_stats(limited, "0", "0", "2Gi")
    assert world.synchronize("2Gi", after=MINUTE) == ["limited"]
    assert world.provider.pods_measured == 1


class Notifier:
    """Count the updates, and raise an error if the test sets one."""

    def __init__(self) -> None:
        self.updates = 0
        self.err: Exception | None = None

    def start(self, ctx: golang.Context) -> None: ...

    def update_threshold(self, ctx: golang.Context, summary: statsapi.Summary) -> None:
        self.updates += 1
        if self.err is not None:
            raise self.err

    def description(self) -> str:
        return "test"


def test_update_memcg_threshold() -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], {}, memory_summary)
    notifier = Notifier()
    world.manager._threshold_notifiers = [notifier]
    world.synchronize("2Gi")
    assert notifier.updates == 1
    world.synchronize("2Gi")
    # Not enough time has passed.
    assert notifier.updates == 1
    notifier.err = OSError("no such cgroup")
    world.synchronize("2Gi", after=2 * eviction_manager.NOTIFIER_REFRESH_INTERVAL)
    assert notifier.updates == 2


def test_notifiers_of_a_start_that_failed_later_on_are_told_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later start replaces the notifiers, each of which starts a thread at every update of its threshold."""
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], {}, memory_summary)
    monkeypatch.setattr(memory_threshold_notifier, "LinuxMemoryThresholdNotifier", lambda *args: Notifier())
    for _ in range(3):
        world.manager._start_notifiers(world.ctx)
    assert len(world.manager._threshold_notifiers) == 1


# ---- The loop ----


def test_the_loop_looks_waits_for_victims_and_ends() -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    world.provider.result = world.make("500Mi")
    asked: golang.Channel[str] = golang.Channel(100)
    finished = False

    def pod_is_finished(pod: v1.Pod) -> bool:
        answer = finished  # The function reads `finished` before it notifies the test.
        asked.send(pod.metadata.name)
        return answer

    looked: golang.Channel[None] = golang.Channel(100)

    def pods() -> list[v1.Pod]:
        looked.send(None)
        return world.active_pods()

    world.manager.start(world.ctx, world.disks, pods, pod_is_finished, 10)
    try:
        assert looked.recv(timeout=30)[1]
        _step_when_waiting(world.clock, 1, waiters=2)
        assert asked.recv(timeout=30) == (_BEST_EFFORT, True)
        finished = True
        world.provider.result = world.make("2Gi")
        _step_when_waiting(world.clock, 1, waiters=2)
        # The manager checks the node again immediately, and then after its interval.
        assert looked.recv(timeout=30)[1]
        _step_when_waiting(world.clock, 10, waiters=1)
        assert looked.recv(timeout=30)[1]
        # A crossed threshold shortens the wait for the interval to MIN_INTERVAL.
        world.manager._crossed.send("crossed")
        _step_when_waiting(world.clock, eviction_manager.MIN_INTERVAL, waiters=1)
        assert looked.recv(timeout=30)[1]
    finally:
        world.cancel()


def test_crossed_threshold_has_the_loop_look_and_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    world.manager._config.kernel_memcg_notification = True
    world.provider.result = world.make("2Gi")
    handlers: list[Callable[[str], object]] = []

    def new_notifier(threshold: object, root: object, factory: object, handler: Callable[[str], object]) -> Notifier:
        handlers.append(handler)
        return Notifier()

    monkeypatch.setattr(memory_threshold_notifier, "LinuxMemoryThresholdNotifier", new_notifier)
    waited: list[float] = []
    monkeypatch.setattr(wait, "sleep", lambda ctx, seconds, clock: waited.append(seconds))
    looked: golang.Channel[str] = golang.Channel(100)

    def pods() -> list[v1.Pod]:
        looked.send(threading.current_thread().name)
        return world.active_pods()

    world.manager.start(world.ctx, world.disks, pods, lambda pod: True, 10)
    try:
        assert looked.recv(timeout=30) == ("eviction-manager", True)
        for _ in range(2):
            handlers[0]("crossed")
            assert looked.recv(timeout=30) == ("eviction-manager", True)
    finally:
        world.cancel()
    assert waited == pytest.approx([eviction_manager.MIN_INTERVAL] * 2)


@pytest.mark.parametrize("err", [OSError("the runtime is away"), golang.DeadlineExceeded()])
def test_the_loop_survives_what_goes_wrong_and_gives_up_waiting(err: Exception) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    world.provider.result = world.make("500Mi")
    world.disks.err = err
    killed: golang.Channel[str] = golang.Channel(100)
    world.manager._kill_pod_func = lambda pod, evict, grace, status: killed.send(pod.metadata.name)
    world.manager.start(world.ctx, world.disks, world.active_pods, lambda pod: False, 10)
    try:
        _step_when_waiting(world.clock, 0, waiters=1)
        world.disks.err = None
        world.clock.step(10)
        assert killed.recv(timeout=30) == (_BEST_EFFORT, True)
        _step_when_waiting(world.clock, eviction_manager.POD_CLEANUP_TIMEOUT, waiters=2)
        assert killed.recv(timeout=30) == (_BEST_EFFORT, True)
    finally:
        world.cancel()


def _step_when_waiting(clock: FakeClock, seconds: float, waiters: int) -> None:
    clock.wait_for_waiters(waiters)
    clock.step(seconds)


# ---- The live view ----


def _watched_world() -> World:
    """Return a world with thresholds of three kinds, too little memory and half of its disk free."""
    thresholds = [
        threshold(_NODE_FS, "10%"),
        threshold(Signal.MEMORY_AVAILABLE, "1Gi", min_reclaim="500Mi"),
        threshold(Signal.MEMORY_AVAILABLE, "2Gi", 2 * MINUTE),
        threshold(Signal.PID_AVAILABLE, "100"),
    ]
    pods = memory_pods()
    _static(pods[_BEST_EFFORT][0])

    def summary(available: str, stats: Iterable[statsapi.PodStats]) -> statsapi.Summary:
        made = memory_summary(available, stats)
        made.node.fs = statsapi.FsStats(available_bytes=50, capacity_bytes=100)
        return made

    world = World(thresholds, pods, summary)
    world.provider.result = world.make("1500Mi")
    world.manager._pod_func = world.active_pods
    return world


def _preview_after_a_minute(world: World) -> eviction.Preview:
    """Return the preview one minute after the first check."""
    world.synchronize("1500Mi")
    world.clock.step(MINUTE)
    return world.manager.preview(world.ctx)


def test_preview_knows_nothing_of_disks_before_the_first_look() -> None:
    world = _watched_world()
    assert [found.ranking for found in world.manager.preview(world.ctx).signals] == [[], [], []]


def test_preview_of_a_shortage_whose_grace_period_lasts() -> None:
    world = _watched_world()
    since = world.clock.now()
    preview = _preview_after_a_minute(world)
    assert world.killer.killed == []
    assert (preview.conditions, preview.conditions_last_observed) == (["MemoryPressure"], {"MemoryPressure": since})
    memory = preview.signals[0]
    assert (memory.signal, memory.resource, memory.condition) == ("memory.available", "memory", "MemoryPressure")
    assert [(str(t.quantity), str(t.reclaim_quantity), t.met, t.since) for t in memory.thresholds] == [
        ("1Gi", "1524Mi", False, None),
        ("2Gi", "2Gi", True, since),
    ]
    assert memory.reclaims == []


def test_preview_ranks_pods_and_names_the_first_that_may_be_evicted() -> None:
    memory = _preview_after_a_minute(_watched_world()).signals[0]
    assert [ranked.pod.metadata.name for ranked in memory.ranking] == [
        _BEST_EFFORT,
        "burstable-above-requests",
        "best-effort-high-priority-high-usage",
        "guaranteed-low-priority-high-usage",
        "burstable-below-requests",
    ]
    assert memory.victim is not None
    assert memory.victim.pod.metadata.name == "burstable-above-requests", "the first one is a static pod"
    assert str(memory.victim) == "over its request, priority 0, usage 400Mi, request 100Mi"


def test_preview_of_what_there_is_enough_of() -> None:
    # The signal of the containers' layers follows that of the root directory.
    _, disk, pid, _ = _preview_after_a_minute(_watched_world()).signals
    assert (disk.reclaims, [t.met for t in disk.thresholds]) == (["dead containers", "unused images"], [False])
    assert (pid.observation, [t.quantity for t in pid.thresholds]) == (None, [None])


# ---- Faults of single pods ----


@failures
def test_pod_whose_limits_cannot_be_looked_at_spares_no_other(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    pods: Pods = {}
    for name in ("first", "bad", "third"):
        pod = new_pod(name, 0, volumes=[_volume("1Gi")])
        pods[name] = pod, evictiontesting.disk_stats(pod, "0", "0", "2Gi")
    world = World([threshold(_NODE_FS, "1Gi")], pods, disk_summary("nodefs", "bytes"), isolation=True)
    look = world.manager._empty_dir_limit_eviction
    monkeypatch.setattr(world.manager, "_empty_dir_limit_eviction", failing_once(look, err, "bad"))
    assert world.synchronize("500Mi") == ["first", "third"]


@failures
def test_next_pod_goes_where_the_first_cannot_be_evicted(monkeypatch: pytest.MonkeyPatch, err: Exception) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    evict = world.manager._evict_pod
    monkeypatch.setattr(world.manager, "_evict_pod", failing_once(evict, err, _BEST_EFFORT))
    (evicted,) = world.synchronize("500Mi")
    assert evicted != _BEST_EFFORT


@failures
def test_notifier_that_fails_keeps_nobody_from_looking(err: Exception) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    notifier = Notifier()
    notifier.err = err
    world.manager._threshold_notifiers = [notifier]
    assert world.synchronize("500Mi") == [_BEST_EFFORT]


@failures
def test_the_loop_survives_a_wait_for_victims_that_fails(err: Exception) -> None:
    world = World([threshold(Signal.MEMORY_AVAILABLE, "1Gi")], memory_pods(), memory_summary)
    world.provider.result = world.make("500Mi")
    killed: golang.Channel[str] = golang.Channel(100)
    world.manager._kill_pod_func = lambda pod, evict, grace, status: killed.send(pod.metadata.name)
    world.manager.start(world.ctx, world.disks, world.active_pods, raising(err), 10)
    try:
        assert killed.recv(timeout=30) == (_BEST_EFFORT, True)
        ctx, cancel = golang.with_timeout(world.ctx, 30)
        # The manager polls its victims every second, and checks the node again after ten seconds.
        while killed.recv(timeout=0.005) != (_BEST_EFFORT, True):
            assert ctx.err() is None
            world.clock.step(1)
        cancel()
    finally:
        world.cancel()
