"""Test thresholds, observations and ranking.

Go: pkg/kubelet/eviction/helpers_test.go
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from kubelet import eviction
from kubelet.apis.stats import v1alpha1 as statsapi
from kubelet.eviction import api as evictionapi
from kubelet.eviction import helpers
from kubelet.eviction import testing as evictiontesting
from kubelet.eviction.testing import amount, new_pod, threshold
from kubelet.eviction.types import FsStatsType, RankFunc, SignalObservation
from pkg.api.core import v1
from pkg.apimachinery.api import resource
from pkg.apimachinery.api.testing import quantities

Signal = evictionapi.Signal
MEMORY, ALLOCATABLE = Signal.MEMORY_AVAILABLE, Signal.ALLOCATABLE_MEMORY_AVAILABLE
NODE_FS, NODE_INODES = Signal.NODE_FS_AVAILABLE, Signal.NODE_FS_INODES_FREE
IMAGE_FS, IMAGE_INODES = Signal.IMAGE_FS_AVAILABLE, Signal.IMAGE_FS_INODES_FREE
CONTAINER_FS, CONTAINER_INODES = Signal.CONTAINER_FS_AVAILABLE, Signal.CONTAINER_FS_INODES_FREE
PID = Signal.PID_AVAILABLE


@dataclass
class Statements:
    """Hold the fields of the configuration, and the expected result."""

    hard: dict[str, str] = field(default_factory=dict)
    soft: dict[str, str] = field(default_factory=dict)
    grace: dict[str, str] = field(default_factory=dict)
    reclaim: dict[str, str] = field(default_factory=dict)
    allocatable: list[str] = field(default_factory=list)

    def parse(self) -> list[evictionapi.Threshold]:
        return eviction.parse_threshold_config(self.allocatable, self.hard, self.soft, self.grace, self.reclaim)


def of(signal: Signal, text: str) -> dict[str, str]:
    return {signal.value: text}


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        pytest.param(Statements(), [], id="no values"),
        pytest.param(
            Statements(of(MEMORY, "150Mi"), of(MEMORY, "300Mi"), of(MEMORY, "30s"), of(MEMORY, "0"), ["pods"]),
            [
                threshold(MEMORY, "150Mi", 0, "0"),
                threshold(MEMORY, "300Mi", 30, "0"),
                threshold(ALLOCATABLE, "150Mi", 0, "0"),
            ],
            id="all memory eviction values",
        ),
        pytest.param(
            Statements(of(MEMORY, "150Mi"), allocatable=["system-reserved"]),
            [threshold(MEMORY, "150Mi")],
            id="no cgroup of all pods",
        ),
        pytest.param(
            Statements(of(MEMORY, "10%"), of(MEMORY, "30%"), of(MEMORY, "30s"), of(MEMORY, "5%")),
            [threshold(MEMORY, "10%", 0, "5%"), threshold(MEMORY, "30%", 30, "5%")],
            id="all memory eviction values in percentages",
        ),
        pytest.param(
            Statements(
                {**of(IMAGE_FS, "15%"), **of(NODE_FS, "10.5%")},
                {**of(IMAGE_FS, "300Mi"), **of(NODE_FS, "200Mi")},
                {**of(IMAGE_FS, "30s"), **of(NODE_FS, "1m30s")},
                {**of(IMAGE_FS, "2Gi"), **of(NODE_FS, "1Gi")},
            ),
            [
                threshold(IMAGE_FS, "15%", 0, "2Gi"),
                threshold(NODE_FS, "10.5%", 0, "1Gi"),
                threshold(IMAGE_FS, "300Mi", 30, "2Gi"),
                threshold(NODE_FS, "200Mi", 90, "1Gi"),
            ],
            id="disk eviction values",
        ),
        pytest.param(
            Statements({**of(IMAGE_INODES, "150Mi"), **of(NODE_INODES, "5%")}, reclaim=of(NODE_INODES, "1Gi")),
            [threshold(IMAGE_INODES, "150Mi"), threshold(NODE_INODES, "5%", 0, "1Gi")],
            id="inode eviction values",
        ),
        pytest.param(Statements(of(MEMORY, "0%"), of(MEMORY, "0%")), [], id="disable via 0%"),
        pytest.param(Statements(of(MEMORY, "100%"), of(MEMORY, "100%")), [], id="disable via 100%"),
    ],
)
def test_parse_threshold_config(statements: Statements, expected: list[evictionapi.Threshold]) -> None:
    def rounded(value: evictionapi.ThresholdValue | None) -> tuple[object, float] | None:
        return None if value is None else (value.quantity, round(value.percentage, 6))

    def comparable(thresholds: list[evictionapi.Threshold]) -> list[tuple[object, ...]]:
        return [(t.signal, rounded(t.value), t.grace_period, rounded(t.min_reclaim)) for t in thresholds]

    assert comparable(statements.parse()) == comparable(expected)


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        pytest.param(
            Statements({"mem.available": "1Gi"}), "evictionHard: unsupported eviction signal mem.available", id="signal"
        ),
        pytest.param(
            Statements(of(MEMORY, "0")),
            "evictionHard: eviction threshold memory.available must be positive: 0",
            id="zero",
        ),
        pytest.param(
            Statements(of(MEMORY, "-150Mi")),
            "evictionHard: eviction threshold memory.available must be positive: -150Mi",
            id="negative",
        ),
        pytest.param(
            Statements(of(MEMORY, "much")),
            "evictionHard: eviction threshold memory.available: quantities must",
            id="text",
        ),
        pytest.param(
            Statements(of(MEMORY, "")), "evictionHard: eviction threshold memory.available: quantities must", id="empty"
        ),
        pytest.param(Statements(of(MEMORY, "-5%")), "memory.available must be >= 0%: -5%", id="negative percentage"),
        pytest.param(Statements(of(MEMORY, "120%")), "memory.available must be <= 100%: 120%", id="too much"),
        pytest.param(
            Statements(of(MEMORY, "10..5%")),
            'eviction percentage threshold memory.available: "10..5%" is not a percentage',
            id="no number",
        ),
        pytest.param(Statements(of(MEMORY, "nan%")), '"nan%" is not a percentage', id="not a number"),
        pytest.param(Statements(of(MEMORY, "1e60%")), "evictionHard: eviction percentage threshold", id="huge number"),
        pytest.param(
            Statements(of(MEMORY, "\u0665%")),
            'eviction percentage threshold memory.available: "\u0665%" is not a percentage',
            id="digit of another script",
        ),
        pytest.param(
            Statements(soft=of(MEMORY, "-150Mi"), grace=of(MEMORY, "1s")),
            "evictionSoft: eviction threshold memory.available must be positive: -150Mi",
            id="soft signal negative",
        ),
        pytest.param(
            Statements(soft=of(MEMORY, "150Mi")),
            "grace period must be specified for the soft eviction threshold memory.available",
            id="soft without grace period",
        ),
        pytest.param(
            Statements(soft=of(MEMORY, "150Mi"), grace=of(MEMORY, "-30s")),
            "evictionSoftGracePeriod: invalid eviction grace period specified: -30s, must be a positive value",
            id="negative grace period",
        ),
        pytest.param(
            Statements(soft=of(MEMORY, "150Mi"), grace=of(MEMORY, "30mins")),
            'evictionSoftGracePeriod: eviction grace period memory.available: time: unknown unit "mins"',
            id="grace period in unknown units",
        ),
        pytest.param(
            Statements(soft=of(MEMORY, "150Mi"), grace={"mem.available": "30s"}),
            "[evictionSoftGracePeriod: unsupported eviction signal mem.available, grace period must be specified",
            id="grace period of an unknown signal",
        ),
        pytest.param(
            Statements(reclaim=of(MEMORY, "-300Mi")),
            "evictionMinimumReclaim: negative eviction minimum reclaim specified for memory.available",
            id="negative reclaim",
        ),
        pytest.param(
            Statements(reclaim=of(MEMORY, "-15%")),
            "eviction percentage minimum reclaim memory.available must be positive: -15%",
            id="negative percentage to reclaim",
        ),
        pytest.param(
            Statements(reclaim=of(MEMORY, "1e999%")),
            "evictionMinimumReclaim: eviction percentage minimum reclaim memory.available: strconv.ParseFloat",
            id="percentage to reclaim that no float holds",
        ),
        pytest.param(
            Statements(reclaim={"mem.available": "300Mi"}),
            "evictionMinimumReclaim: unsupported eviction signal mem.available",
            id="reclaim of an unknown signal",
        ),
        pytest.param(
            Statements(reclaim=of(MEMORY, "")),
            "evictionMinimumReclaim: eviction minimum reclaim memory.available: quantities",
            id="empty reclaim",
        ),
    ],
)
def test_bad_thresholds(statements: Statements, message: str) -> None:
    with pytest.raises(eviction.ThresholdsError) as raised:
        statements.parse()
    assert message in str(raised.value)


def test_all_faults_are_told() -> None:
    statements = Statements(
        {"mem": "1Gi", **of(MEMORY, "0")}, of(NODE_FS, "x"), of(NODE_FS, "x"), {"disk": "1", **of(PID, "-1")}
    )
    with pytest.raises(eviction.ThresholdsError) as raised:
        statements.parse()
    assert [fault.split(": ")[0] for fault in raised.value.faults] == [
        "evictionHard",
        "evictionHard",
        "evictionSoft",
        "evictionSoftGracePeriod",
        "evictionMinimumReclaim",
        "evictionMinimumReclaim",
    ]


def test_percentages_are_rounded_as_in_go() -> None:
    (found,) = Statements(of(NODE_FS, "10%")).parse()
    # A tenth in 32 bits is slightly more than a tenth.
    assert evictionapi.get_threshold_quantity(found.value, resource.must_parse("1Gi")).value() == 107374184


@pytest.mark.parametrize(
    ("image_fs", "separate", "shared"),
    [
        pytest.param(False, False, "nodefs", id="single file system"),
        pytest.param(True, False, "imagefs", id="image file system"),
        pytest.param(True, True, "nodefs", id="images apart from layers"),
    ],
)
@pytest.mark.parametrize("own", [True, False], ids=["with thresholds of its own", "without"])
def test_update_container_fs_thresholds(image_fs: bool, separate: bool, shared: str, own: bool) -> None:
    given = [
        threshold(NODE_FS, "100Mi", 0, "1Gi"),
        threshold(NODE_FS, "200Mi", 60, "1Gi"),
        threshold(NODE_INODES, "100"),
        threshold(IMAGE_FS, "150Mi", 0, "2Gi"),
        threshold(IMAGE_INODES, "5%"),
        threshold(IMAGE_INODES, "10%", 30),
        threshold(MEMORY, "1Gi"),
    ]
    ignored = [threshold(CONTAINER_FS, "1Mi"), threshold(CONTAINER_INODES, "2", 30)] if own else []
    found, told = helpers.update_container_fs_thresholds([*ignored, *given], image_fs, separate)
    expected = {
        "nodefs": [
            threshold(CONTAINER_FS, "100Mi", 0, "1Gi"),
            threshold(CONTAINER_FS, "200Mi", 60, "1Gi"),
            threshold(CONTAINER_INODES, "100"),
        ],
        "imagefs": [
            threshold(CONTAINER_FS, "150Mi", 0, "2Gi"),
            threshold(CONTAINER_INODES, "5%"),
            threshold(CONTAINER_INODES, "10%", 30),
        ],
    }
    assert found == given + expected[shared]
    messages = [
        "found containerfs.available for hard eviction. ignoring",
        "found containerfs.inodesFree for soft eviction. ignoring",
    ]
    assert told == (messages if own else [])


# ---- Ranking ----

_WHOLE_POD = (FsStatsType.ROOT, FsStatsType.LOGS, FsStatsType.LOCAL_VOLUME_SOURCE)


@dataclass
class Ranking:
    """Rank pods by one kind of statistics."""

    rank: RankFunc
    stats: Callable[..., statsapi.PodStats]
    # Pods request this resource.
    requested: str = ""

    def names(self, rows: list[tuple[str, int, str, tuple[object, ...]]]) -> list[str]:
        """Rank rows of name, priority, request and statistics. A pod without statistics has an empty tuple."""
        stats, pods = {}, []
        for name, priority, request, figures in rows:
            volume = v1.Volume(name="local-volume", empty_dir=v1.EmptyDirVolumeSource())
            pod = new_pod(name, priority, quantities(**{self.requested: request}) if request else {}, volumes=[volume])
            pods.append(pod)
            if figures:
                stats[name] = self.stats(pod, *figures)
        return [r.pod.metadata.name for r in self.rank(pods, lambda pod: stats.get(pod.metadata.name))]


MEMORY_RANKING = Ranking(helpers.rank_memory_pressure, evictiontesting.memory_stats, "memory")
DISK_RANKING = Ranking(
    helpers.rank_disk_pressure_func(_WHOLE_POD, v1.RESOURCE_EPHEMERAL_STORAGE),
    evictiontesting.disk_stats,
    "ephemeral_storage",
)
INODE_RANKING = Ranking(
    helpers.rank_disk_pressure_func(_WHOLE_POD, helpers.RESOURCE_INODES),
    evictiontesting.inode_stats,
    "ephemeral_storage",
)
PID_RANKING = Ranking(helpers.rank_pid_pressure, evictiontesting.process_stats, "memory")


@pytest.mark.parametrize(
    ("ranking", "rows"),
    [
        pytest.param(
            MEMORY_RANKING,
            [("exceeds", 1, "100Mi", ("101Mi",)), ("below", -1, "200Mi", ("199Mi",))],
            id="memory: over the request first",
        ),
        pytest.param(
            MEMORY_RANKING,
            [("low", -134, "", ("1",)), ("medium", 1, "", ("1",)), ("high", 12534, "", ("1",))],
            id="memory: lower priority first",
        ),
        pytest.param(
            MEMORY_RANKING,
            [
                ("burstable-high", 0, "100Mi", ("800Mi",)),
                ("best-effort-high", 0, "", ("500Mi",)),
                ("best-effort-low", 0, "", ("300Mi",)),
                ("burstable-low", 0, "100Mi", ("300Mi",)),
                ("guaranteed-high", 0, "1Gi", ("800Mi",)),
                ("guaranteed-low", 0, "1Gi", ("200Mi",)),
            ],
            id="memory: furthest over the request first",
        ),
        pytest.param(
            MEMORY_RANKING,
            [
                ("above-requests-low-priority-high-usage", -1, "", ("500Mi",)),
                ("above-requests-low-priority-low-usage", -1, "", ("50Mi",)),
                ("above-requests-high-priority-high-usage", 1, "100Mi", ("600Mi",)),
                ("above-requests-high-priority-low-usage", 1, "100Mi", ("150Mi",)),
                ("below-requests-low-priority-high-usage", -1, "1Gi", ("800Mi",)),
                ("below-requests-low-priority-low-usage", -1, "1Gi", ("200Mi",)),
                ("below-requests-high-priority-high-usage", 1, "1Gi", ("800Mi",)),
                ("below-requests-high-priority-low-usage", 1, "1Gi", ("200Mi",)),
            ],
            id="memory",
        ),
        pytest.param(
            MEMORY_RANKING,
            [("unknown-low", -1, "", ()), ("unknown-high", 1, "", ()), ("exceeds", -1, "", ("9Gi",))],
            id="memory: pods without figures first",
        ),
        pytest.param(
            DISK_RANKING,
            [
                ("exceeds", 1, "100Mi", ("90Mi", "11Mi", "0")),
                ("below", -1, "200Mi", ("100Mi", "99Mi", "0")),
            ],
            id="disk: over the request first",
        ),
        pytest.param(
            DISK_RANKING,
            [
                ("best-effort-high", 0, "", ("50Mi", "100Mi", "150Mi")),
                ("burstable-high", 0, "100Mi", ("150Mi", "150Mi", "50Mi")),
                ("best-effort-low", 0, "", ("25Mi", "25Mi", "50Mi")),
                ("burstable-low", 0, "100Mi", ("25Mi", "35Mi", "50Mi")),
                ("guaranteed-high", 0, "400Mi", ("225Mi", "100Mi", "50Mi")),
                ("guaranteed-low", 0, "400Mi", ("25Mi", "45Mi", "50Mi")),
            ],
            id="disk: furthest over the request first",
        ),
        pytest.param(
            DISK_RANKING,
            [
                ("above-requests-low-priority-high-usage", -1, "", ("200Mi", "100Mi", "200Mi")),
                ("above-requests-low-priority-low-usage", -1, "", ("10Mi", "10Mi", "30Mi")),
                ("above-requests-high-priority-high-usage", 1, "100Mi", ("200Mi", "150Mi", "250Mi")),
                ("above-requests-high-priority-low-usage", 1, "100Mi", ("90Mi", "50Mi", "10Mi")),
                ("below-requests-low-priority-high-usage", -1, "1Gi", ("500Mi", "200Mi", "100Mi")),
                ("below-requests-low-priority-low-usage", -1, "1Gi", ("50Mi", "100Mi", "50Mi")),
                ("below-requests-high-priority-high-usage", 1, "1Gi", ("250Mi", "500Mi", "50Mi")),
                ("below-requests-high-priority-low-usage", 1, "1Gi", ("100Mi", "60Mi", "40Mi")),
            ],
            id="disk",
        ),
        pytest.param(
            INODE_RANKING,
            [
                ("low-priority-high-usage", -1, "", ("50000", "100000", "250000")),
                ("low-priority-low-usage", -1, "", ("60000", "30000", "10000")),
                ("high-priority-high-usage", 1, "", ("150000", "150000", "50000")),
                ("high-priority-low-usage", 1, "", ("10000", "40000", "100000")),
            ],
            id="inodes",
        ),
        pytest.param(
            INODE_RANKING,
            [("many", 0, "1Gi", ("3000", "0", "0")), ("few", 0, "", ("1000", "0", "0"))],
            id="inodes: requested bytes do not count",
        ),
        pytest.param(
            PID_RANKING,
            [
                ("low-priority-high-usage", -1, "", (20,)),
                ("low-priority-low-usage", -1, "", (6,)),
                ("high-priority-unknown", 1, "", ()),
                ("high-priority-high-usage", 1, "", (20,)),
                ("high-priority-low-usage", 1, "", (5,)),
            ],
            id="pids",
        ),
    ],
)
def test_ranking(ranking: Ranking, rows: list[tuple[str, int, str, tuple[object, ...]]]) -> None:
    expected = [name for name, *_ in rows]
    for given in (rows, rows[::-1], rows[1:] + rows[:1]):
        assert ranking.names(given) == expected


@pytest.mark.parametrize(
    ("image_fs", "split", "node_fs", "image", "container_fs"),
    [
        pytest.param(False, False, 1111, 1111, 1111, id="one file system"),
        pytest.param(True, False, 1101, 10, 10, id="images and layers apart"),
        pytest.param(True, True, 1111, 0, 1111, id="images apart"),
    ],
)
def test_what_counts_of_a_pod(image_fs: bool, split: bool, node_fs: int, image: int, container_fs: int) -> None:
    """Only usage on the affected disk counts.

    A layer uses 10 bytes, a log 1, an emptyDir 100 and a host path 1000. A memory volume does not count.
    """
    volumes = [
        v1.Volume(name="empty", empty_dir=v1.EmptyDirVolumeSource()),
        v1.Volume(name="host", host_path=v1.HostPathVolumeSource(path="/data")),
        v1.Volume(name="memory", empty_dir=v1.EmptyDirVolumeSource(medium="Memory")),
    ]
    pod = new_pod("pod", volumes=volumes)
    stats = evictiontesting.disk_stats(pod, "10", "1", "0")
    stats.volume_stats = [
        statsapi.VolumeStats(name="empty", used_bytes=100),
        statsapi.VolumeStats(name="host", used_bytes=1000),
        statsapi.VolumeStats(name="memory", used_bytes=10000),
    ]
    funcs = helpers.build_signal_to_rank_func(image_fs, split)
    for signal, expected in ((NODE_FS, node_fs), (IMAGE_FS, image), (CONTAINER_FS, container_fs)):
        (ranked,) = funcs[signal]([pod], lambda pod: stats)
        assert ranked.usage is not None
        assert (signal, ranked.usage.value()) == (signal, expected)


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        ([], []),
        ([NODE_FS, PID, MEMORY], [MEMORY, NODE_FS, PID]),
        ([NODE_FS, PID, ALLOCATABLE], [ALLOCATABLE, NODE_FS, PID]),
    ],
)
def test_by_eviction_priority(signals: list[Signal], expected: list[Signal]) -> None:
    found = sorted((threshold(signal, "1") for signal in signals), key=helpers.by_eviction_priority)
    assert [t.signal for t in found] == expected


# ---- Observations ----


def test_make_signal_observations() -> None:
    def fs(left: int) -> statsapi.FsStats:
        return statsapi.FsStats(
            available_bytes=left, capacity_bytes=100 + left, inodes_free=10 * left, inodes=11 * left, time=NOW
        )

    def memory(left: int) -> statsapi.MemoryStats:
        return statsapi.MemoryStats(available_bytes=left, working_set_bytes=50, time=NOW)

    pod = new_pod("pod")
    summary = statsapi.Summary(
        node=statsapi.NodeStats(
            memory=memory(1),
            fs=fs(2),
            runtime=statsapi.RuntimeStats(image_fs=fs(3), container_fs=fs(4)),
            rlimit=statsapi.RlimitStats(max_pid=1000, num_of_running_processes=995, time=NOW),
            system_containers=[
                statsapi.ContainerStats(name="kubelet", memory=memory(7)),
                statsapi.ContainerStats(name="pods", memory=memory(6)),
            ],
        ),
        pods=[evictiontesting.memory_stats(pod, "1Gi")],
    )
    observations, stats_func = helpers.make_signal_observations(summary)
    assert {signal: (o.available.value(), o.capacity.value()) for signal, o in observations.items()} == {
        MEMORY: (1, 51),
        NODE_FS: (2, 102),
        NODE_INODES: (20, 22),
        IMAGE_FS: (3, 103),
        IMAGE_INODES: (30, 33),
        CONTAINER_FS: (4, 104),
        CONTAINER_INODES: (40, 44),
        PID: (5, 1000),
        ALLOCATABLE: (6, 56),
    }
    assert {o.time for o in observations.values()} == {NOW}
    assert stats_func(pod) is summary.pods[0]
    assert stats_func(new_pod("other")) is None


def test_what_cannot_be_measured_is_not_observed() -> None:
    summary = statsapi.Summary(
        node=statsapi.NodeStats(
            memory=statsapi.MemoryStats(working_set_bytes=1),
            fs=statsapi.FsStats(available_bytes=1, inodes=1),
            runtime=statsapi.RuntimeStats(image_fs=statsapi.FsStats(capacity_bytes=1, inodes_free=1)),
            rlimit=statsapi.RlimitStats(max_pid=1),
            system_containers=[statsapi.ContainerStats(name="pods")],
        )
    )
    assert helpers.make_signal_observations(summary)[0] == {}
    assert helpers.make_signal_observations(statsapi.Summary())[0] == {}


def test_node_without_a_cgroup_of_all_pods_logs_no_error(log: io.StringIO) -> None:
    helpers.make_signal_observations(statsapi.Summary())
    assert log.getvalue() == ""


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


def observed(available: str, capacity: str = "10Gi", time: datetime | None = None) -> SignalObservation:
    return SignalObservation(resource.parse_quantity(capacity), resource.parse_quantity(available), time)


@pytest.mark.parametrize(
    ("value", "reclaim", "enforce", "available", "met"),
    [
        pytest.param("1Gi", "500Mi", False, "500Mi", True, id="met"),
        pytest.param("1Gi", "500Mi", False, "1Gi", False, id="just not met"),
        pytest.param("1Gi", "500Mi", False, "2Gi", False, id="not met"),
        pytest.param("1Gi", "500Mi", True, "1.05Gi", True, id="met with what is to be reclaimed"),
        pytest.param("1Gi", "500Mi", True, "2Gi", False, id="not met with what is to be reclaimed"),
        pytest.param("1Gi", "", True, "1.05Gi", False, id="nothing to be reclaimed"),
        pytest.param("20%", "5%", False, "1Gi", True, id="percentage met"),
        pytest.param("20%", "5%", False, "2.2Gi", False, id="percentage not met"),
        pytest.param("20%", "5%", True, "2.2Gi", True, id="percentage met with what is to be reclaimed"),
        pytest.param("20%", "5%", True, "2.6Gi", False, id="percentage not met with what is to be reclaimed"),
    ],
)
def test_thresholds_met(value: str, reclaim: str, enforce: bool, available: str, met: bool) -> None:
    given = threshold(MEMORY, value, 0, reclaim)
    assert helpers.thresholds_met([given], {MEMORY: observed(available)}, enforce) == ([given] if met else [])
    assert helpers.thresholds_met([given], {NODE_FS: observed("0")}, enforce) == []


@pytest.mark.parametrize(
    ("last", "now", "updated"),
    [
        pytest.param(None, None, True, id="no time"),
        pytest.param(None, NOW, True, id="never before"),
        pytest.param(NOW, None, True, id="no longer any time"),
        pytest.param(NOW, NOW, False, id="the same time"),
        pytest.param(NOW, NOW - timedelta(seconds=1), True, id="after the clock was set back"),
        pytest.param(NOW, NOW + timedelta(seconds=1), True, id="newer"),
    ],
)
def test_thresholds_updated_stats(last: datetime | None, now: datetime | None, updated: bool) -> None:
    given = threshold(MEMORY, "1Gi")
    before = {MEMORY: observed("1Gi", time=last)}
    found = helpers.thresholds_updated_stats([given], {MEMORY: observed("1Gi", time=now)}, before)
    assert found == ([given] if updated else [])
    assert helpers.thresholds_updated_stats([given], {}, before) == []
    assert helpers.thresholds_updated_stats([given], {MEMORY: observed("1Gi", time=now)}, {}) == [given]


def test_thresholds_first_observed_at_and_their_grace_periods() -> None:
    hard, soft = threshold(MEMORY, "1Gi"), threshold(MEMORY, "2Gi", 30)
    before = NOW - timedelta(seconds=20)
    observed_at = helpers.thresholds_first_observed_at([hard, soft], {soft: before, threshold(PID, "1"): before}, NOW)
    assert observed_at == {hard: NOW, soft: before}
    assert helpers.thresholds_met_grace_period({}, NOW) == []
    assert helpers.thresholds_met_grace_period(observed_at, NOW) == [hard]
    assert helpers.thresholds_met_grace_period(observed_at, NOW + timedelta(seconds=10)) == [hard, soft]


def test_node_conditions() -> None:
    assert helpers.node_conditions([]) == []
    signals = (NODE_FS, IMAGE_INODES, MEMORY, ALLOCATABLE, CONTAINER_FS)
    found = helpers.node_conditions([threshold(signal, "1") for signal in signals])
    assert found == [v1.NODE_DISK_PRESSURE, v1.NODE_MEMORY_PRESSURE]


def test_node_conditions_last_observed_at_and_since() -> None:
    before = NOW - timedelta(seconds=60)
    memory, disk, pid = v1.NODE_MEMORY_PRESSURE, v1.NODE_DISK_PRESSURE, v1.NODE_PID_PRESSURE
    found = helpers.node_conditions_last_observed_at([memory, pid], {memory: before, disk: before}, NOW)
    assert found == {memory: NOW, disk: before, pid: NOW}
    assert helpers.node_conditions_observed_since(found, 61, NOW) == [memory, disk, pid]
    assert helpers.node_conditions_observed_since(found, 60, NOW) == [memory, pid]
    # Without a transition period, conditions show exactly as long as they are observed.
    assert helpers.node_conditions_observed_since(found, 0, NOW) == [memory, pid]
    assert helpers.node_conditions_observed_since(found, 0, NOW + timedelta(seconds=1)) == []


def test_merge_thresholds() -> None:
    one, other = threshold(MEMORY, "1Gi"), threshold(MEMORY, "1Gi", 30)
    percentage = threshold(MEMORY, "10%")
    same = threshold(MEMORY, "1024Mi", 0, "1Gi")
    assert helpers.merge_thresholds([one, other], [same, percentage]) == [one, other, percentage]
    assert helpers.merge_thresholds([], [same]) == [same]


# ---- Messages ----


@pytest.mark.parametrize(
    ("status", "evicted"),
    [
        (v1.PodStatus(phase="Failed", reason="Evicted"), True),
        (v1.PodStatus(phase="Failed", reason="Preempting"), False),
        (v1.PodStatus(phase="Running", reason="Evicted"), False),
    ],
)
def test_pod_is_evicted(status: v1.PodStatus, evicted: bool) -> None:
    assert eviction.pod_is_evicted(status) is evicted


@dataclass
class Blame:
    """Describe what containers request and use, and which are blamed."""

    # These fields hold the requests by container name.
    init: dict[str, str] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    usage: dict[str, str] = field(default_factory=dict)
    pod_request: str = ""
    pod_usage: str = "1Mi"
    # This field holds the requests of the blamed containers, by name.
    blamed: dict[str, str] = field(default_factory=dict)

    def pod(self) -> v1.Pod:
        def container(name: str, request: str) -> v1.Container:
            return v1.Container(name=name, resources=v1.ResourceRequirements(requests=quantities(memory=request)))

        pod = new_pod("pod")
        pod.spec.init_containers = [container(*item) for item in self.init.items()]
        pod.spec.containers = [container(*item) for item in self.containers.items()]
        pod.spec.ephemeral_containers = [v1.EphemeralContainer(name="ephemeral")]
        if self.pod_request:
            pod.spec.resources = v1.ResourceRequirements(requests=quantities(memory=self.pod_request))
        return pod

    def stats(self, pod: v1.Pod) -> statsapi.PodStats:
        def memory(usage: str) -> statsapi.MemoryStats:
            return statsapi.MemoryStats(working_set_bytes=amount(usage))

        containers = [statsapi.ContainerStats(name=name, memory=memory(used)) for name, used in self.usage.items()]
        return evictiontesting.pod_stats(pod, memory=memory(self.pod_usage), containers=containers)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Blame({"init": "100Mi", "sidecar": "200Mi"}, {"c": "200Mi"}, {"sidecar": "150Mi", "c": "100Mi"}),
            id="nobody uses more than requested",
        ),
        pytest.param(
            Blame({"init": "100Mi", "sidecar": "200Mi"}, {"c": "1Mi"}, {"init": "150Mi"}, blamed={"init": "100Mi"}),
            id="init container",
        ),
        pytest.param(
            Blame(
                {"init": "100Mi", "sidecar": "200Mi"},
                {"c": "200Mi"},
                {"sidecar": "250Mi", "c": "200Mi"},
                blamed={"sidecar": "200Mi"},
            ),
            id="sidecar",
        ),
        pytest.param(
            Blame({}, {"a": "200Mi", "b": "300Mi"}, {"a": "250Mi", "b": "250Mi"}, blamed={"a": "200Mi"}), id="container"
        ),
        pytest.param(
            Blame({}, {"c": "200Mi"}, {"c": "150Mi", "ephemeral": "250Mi"}), id="an ephemeral container has no requests"
        ),
        pytest.param(
            Blame(
                {"init": "100Mi", "sidecar": ""},
                {"c": ""},
                {"sidecar": "250Mi", "c": "200Mi"},
                blamed={"sidecar": "0", "c": "0"},
            ),
            id="no requests",
        ),
        pytest.param(
            Blame(
                {},
                {"a": "", "b": ""},
                {"a": "250Mi", "b": "350Mi"},
                "250Mi",
                "600Mi",
                blamed={"a": "0", "b": "0"},
            ),
            id="requests of the whole pod",
        ),
    ],
)
def test_eviction_message(case: Blame) -> None:
    pod = case.pod()
    message, annotations = helpers.eviction_message("memory", pod, case.stats, [], {})
    expected = "The node was low on resource: memory. "
    expected_annotations = {}
    if case.pod_request:
        expected += (
            f"Pod pod was using {case.pod_usage}, request is {case.pod_request}, has larger consumption of memory. "
        )
        expected_annotations = {"offending_pod": "pod", "offending_pod_usage": case.pod_usage}
    for name, request in case.blamed.items():
        used = case.usage[name]
        expected += f"Container {name} was using {used}, request is {request}, has larger consumption of memory. "
    assert message == expected
    assert annotations == {
        **expected_annotations,
        "offending_containers": ",".join(case.blamed),
        "offending_containers_usage": ",".join(case.usage[name] for name in case.blamed),
        "starved_resource": "memory",
    }


def test_the_message_names_the_threshold_and_says_less_without_figures() -> None:
    pod = new_pod("pod")
    thresholds = [threshold(NODE_FS, "1Gi"), threshold(MEMORY, "10%")]
    observations = {MEMORY: observed("500Mi"), NODE_FS: observed("1Mi")}
    found = helpers.eviction_message("memory", pod, lambda pod: None, thresholds, observations)
    assert found == ("The node was low on resource: memory. Threshold quantity: 1Gi, available: 500Mi. ", {})
