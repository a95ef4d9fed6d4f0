"""Tests of thresholds, observations and ranking.

Go: pkg/kubelet/eviction/helpers_test.go
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kubelet import eviction
from kubelet.eviction import api as evictionapi
from kubelet.eviction.testing import threshold
from pkg.apimachinery.api import resource

Signal = evictionapi.Signal
MEMORY, ALLOCATABLE = Signal.MEMORY_AVAILABLE, Signal.ALLOCATABLE_MEMORY_AVAILABLE
NODE_FS, NODE_INODES = Signal.NODE_FS_AVAILABLE, Signal.NODE_FS_INODES_FREE
IMAGE_FS, IMAGE_INODES = Signal.IMAGE_FS_AVAILABLE, Signal.IMAGE_FS_INODES_FREE
CONTAINER_FS, CONTAINER_INODES = Signal.CONTAINER_FS_AVAILABLE, Signal.CONTAINER_FS_INODES_FREE
PID = Signal.PID_AVAILABLE


@dataclass
class Statements:
    """The configuration's fields, and what is to come of them."""

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
            'eviction percentage threshold memory.available: "10..5%" is no percentage',
            id="no number",
        ),
        pytest.param(Statements(of(MEMORY, "nan%")), '"nan%" is no percentage', id="not a number"),
        pytest.param(Statements(of(MEMORY, "1e60%")), "evictionHard: eviction percentage threshold", id="huge number"),
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
    # A tenth in 32 bits is a little more than a tenth.
    assert evictionapi.get_threshold_quantity(found.value, resource.must_parse("1Gi")).value() == 107374184
