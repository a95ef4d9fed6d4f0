"""Test the distances between NUMA nodes.

Go: pkg/kubelet/cm/topologymanager/numa_info_test.go
"""

from __future__ import annotations

import pytest

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.cm.topologymanager.numa_info import NUMADistances, NUMAInfo
from kubelet.cm.topologymanager.policy_options import PolicyOptions

_FOUR = NUMADistances({0: (10, 11, 12, 12), 1: (11, 10, 12, 12), 2: (12, 12, 10, 11), 3: (12, 12, 11, 10)})
_EQUAL = NUMADistances(dict.fromkeys(range(4), (10, 10, 10, 10)))


def _info(distances: NUMADistances) -> NUMAInfo:
    nodes = [cadvisorapi.Node(id=node, distances=tuple(to_all)) for node, to_all in distances.items()]
    return NUMAInfo(nodes, PolicyOptions(prefer_closest_numa=True))


def test_numa_info() -> None:
    assert _info(_FOUR).nodes == [0, 1, 2, 3]
    assert _info(_FOUR).numa_distances == _FOUR
    assert _info(_FOUR).default_affinity_mask() == BitMask(0, 1, 2, 3)


def test_distances_that_are_not_known() -> None:
    nodes = [cadvisorapi.Node(id=0)]
    assert NUMAInfo(nodes, PolicyOptions()).nodes == [0]
    with pytest.raises(ValueError, match="error getting NUMA distances from cadvisor"):
        NUMAInfo(nodes, PolicyOptions(prefer_closest_numa=True))


@pytest.mark.parametrize(
    ("nodes", "want"),
    [([], 0), ([0], 10), ([0, 1], 10.5), ([0, 2], 11), ([0, 2, 3], pytest.approx(11.1111, abs=1e-4))],
)
def test_calculate_average_for(nodes: list[int], want: float) -> None:
    assert _FOUR.calculate_average_for(BitMask(*nodes)) == want


@pytest.mark.parametrize(
    ("distances", "one", "other"),
    [
        (_FOUR, [0], [0, 2]),
        (_EQUAL, [0, 1], [0, 2]),
        (_EQUAL, [0, 2], [0, 3]),
        (_FOUR, [0, 1], [0, 3]),
        (_FOUR, [2, 3], [0, 3]),
    ],
    ids=["fewer", "lower, of equal distance", "lower, the other way round", "closer", "closer, though higher"],
)
def test_closest(distances: NUMADistances, one: list[int], other: list[int]) -> None:
    info = _info(distances)
    assert info.closest(BitMask(*one), BitMask(*other)) == BitMask(*one)
    assert info.closest(BitMask(*other), BitMask(*one)) == BitMask(*one)
