"""Test the policies of the topology manager.

Hints are written as the nodes' digits ("-" for no nodes), with a plus if they are preferred.

Go: pkg/kubelet/cm/topologymanager/policy_test.go, policy_none_test.go,
policy_best_effort_test.go, policy_restricted_test.go, policy_single_numa_node_test.go
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence

import pytest

from kubelet.cadvisor.info import v1 as cadvisorapi
from kubelet.cm.topologymanager.bitmask import BitMask, iterate_bit_masks
from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.numa_info import NUMAInfo
from kubelet.cm.topologymanager.policy import HintMerger, MergedHint, Policy, max_of_min_affinity_counts, merged_hints
from kubelet.cm.topologymanager.policy_best_effort import BestEffortPolicy
from kubelet.cm.topologymanager.policy_none import NonePolicy
from kubelet.cm.topologymanager.policy_options import PolicyOptions
from kubelet.cm.topologymanager.policy_restricted import RestrictedPolicy
from kubelet.cm.topologymanager.policy_single_numa_node import SingleNumaNodePolicy, filter_single_numa_hints

Rows = list[tuple[list[dict[str, str | None]], str]]

_FOUR_NODES = ((10, 11, 12, 12), (11, 10, 12, 12), (12, 12, 10, 11), (12, 12, 11, 10))
_EIGHT_NODES = (
    (10, 11, 12, 12, 30, 30, 30, 30),
    (11, 10, 12, 12, 30, 30, 30, 30),
    (12, 12, 10, 11, 30, 30, 30, 30),
    (12, 12, 11, 10, 30, 30, 30, 30),
    (30, 30, 30, 30, 10, 11, 12, 12),
    (30, 30, 30, 30, 11, 10, 12, 12),
    (30, 30, 30, 30, 12, 12, 10, 11),
    (30, 30, 30, 30, 12, 12, 13, 10),
)


def _numa_info(distances: Sequence[tuple[int, ...]], opts: PolicyOptions) -> NUMAInfo:
    return NUMAInfo([cadvisorapi.Node(id=i, distances=to_all) for i, to_all in enumerate(distances)], opts)


def _hint(text: str) -> TopologyHint:
    nodes = text.rstrip("+")
    mask = None if nodes == "-" else BitMask(*(int(digit) for digit in nodes.replace("none", "")))
    return TopologyHint(mask, text.endswith("+"))


def _hints(provider: Mapping[str, str | None]) -> Hints:
    return {
        name: None if texts is None else [_hint(text) for text in texts.split()] for name, texts in provider.items()
    }


# The columns are the providers' hints by resource, and the merged hint.
_COMMON: Rows = [
    ([{"resource1": "0+"}, {"resource2": "0+"}], "0+"),
    ([{"resource1": "1+"}, {"resource2": "1+"}], "1+"),
    ([{}, {"resource": "0+"}], "0+"),
    ([{}, {"resource": "1+"}], "1+"),
    ([{"resource1": "0+ 1+"}, {"resource2": "0+"}], "0+"),
    ([{"resource1": "0+ 1+"}, {"resource2": "1+"}], "1+"),
    ([{"resource1": "0+ 1+"}, {"resource2": "0+ 01"}], "0+"),
    ([{"resource1": "1+ 01"}, {"resource2": "0+ 1+ 01"}], "1+"),
    ([{"resource1": "1+ 01", "resource2": "0+ 1+ 01"}], "1+"),
]
_NOT_SINGLE: Rows = [
    ([{"resource1": "01+ 02+"}, {"resource2": "01+ 02+"}], "01+"),
    ([], "all+"),
    ([{}], "all+"),
    ([{"resource": None}], "all+"),
    ([{"resource": ""}], "all"),
    ([{"resource": "-+"}], "all+"),
    ([{"resource": "-"}], "all"),
    ([{"resource1": "0+"}, {"resource2": "1+"}], "all"),
    ([{"resource1": "0+"}, {"resource2": "0"}], "0"),
    ([{"resource1": "1+"}, {"resource2": "1"}], "1"),
    ([{"resource1": "0+"}, {"resource2": "01+"}], "0"),
    ([{"resource1": "0+ 1+"}, {"resource2": "01"}], "0"),
    ([{"resource1": "1+"}, {"resource2": "01+"}], "1"),
    ([{"resource1": "0123 01"}, {"resource2": "01"}], "01"),
    ([{"resource1": "0123 01"}, {"resource2": "03"}], "03"),
    ([{"resource1": "0123 01"}, {"resource2": "12"}], "12"),
    ([{"resource1": "0123 01"}, {"resource2": "23"}], "23"),
]
_NARROWEST: Rows = [
    ([{"resource1": "0123 01"}, {"resource2": "12 23"}], "12"),
    ([{"resource1": "0123 01"}, {"resource2": "123 12 13 23"}], "12"),
]
_CLOSEST: Rows = [
    ([{"resource1": "04+ 02+"}, {"resource2": "04+ 02+"}], "02+"),
    ([{"resource1": "4+ 02+"}, {"resource2": "4+ 02+"}], "4+"),
    ([{"resource1": "0123 01"}, {"resource2": "12 23"}], "23"),
    ([{"resource1": "0123 01"}, {"resource2": "123 12 13 23"}], "23"),
]
_SINGLE: Rows = [
    ([], "-+"),
    ([{}], "-+"),
    ([{"resource": None}], "-+"),
    ([{"resource": ""}], "-"),
    ([{"resource": "-+"}], "-+"),
    ([{"resource": "-"}], "-"),
    ([{"resource1": "0+"}, {"resource2": "1+"}], "-"),
    ([{"resource1": "0+"}, {"resource2": "0"}], "-"),
    ([{"resource1": "1+"}, {"resource2": "1"}], "-"),
    ([{"resource1": "0+ 1+"}, {"resource2": "01"}], "-"),
    ([{"resource1": "01+", "resource2": "0+ 1+ 01"}], "-"),
    ([{"resource1": "0+ 1+ 01"}, {}], "0+"),
]


def _check_merge(policy: Policy, nodes: int, providers: list[dict[str, str | None]], want: str) -> TopologyHint:
    want = want.replace("all", "".join(map(str, range(nodes))))
    hint = policy.merge([_hints(provider) for provider in providers]).hint
    assert hint == _hint(want)
    return hint


@pytest.mark.parametrize("policy_class", [BestEffortPolicy, RestrictedPolicy])
@pytest.mark.parametrize(("providers", "want"), _COMMON + _NOT_SINGLE + _NARROWEST)
def test_merge(policy_class: type[BestEffortPolicy], providers: list[dict[str, str | None]], want: str) -> None:
    opts = PolicyOptions()
    _check_merge(policy_class(_numa_info(_FOUR_NODES, opts), opts), 4, providers, want)


@pytest.mark.parametrize("policy_class", [BestEffortPolicy, RestrictedPolicy])
@pytest.mark.parametrize(("providers", "want"), _COMMON + _NOT_SINGLE + _CLOSEST)
def test_merge_closest(policy_class: type[BestEffortPolicy], providers: list[dict[str, str | None]], want: str) -> None:
    opts = PolicyOptions(prefer_closest_numa=True)
    _check_merge(policy_class(_numa_info(_EIGHT_NODES, opts), opts), 8, providers, want)


@pytest.mark.parametrize(("providers", "want"), _COMMON + _SINGLE)
def test_merge_single_numa_node(providers: list[dict[str, str | None]], want: str) -> None:
    opts = PolicyOptions()
    _check_merge(SingleNumaNodePolicy(_numa_info(_FOUR_NODES, opts), opts), 4, providers, want)


def test_merge_none() -> None:
    assert NonePolicy().merge([_hints({"resource": "0+"})]) == MergedHint(TopologyHint(), admit=True)


@pytest.mark.parametrize(
    ("policy_class", "preferred", "other"),
    [(BestEffortPolicy, True, True), (RestrictedPolicy, True, False), (SingleNumaNodePolicy, True, False)],
)
def test_can_admit(policy_class: type[BestEffortPolicy], preferred: bool, other: bool) -> None:
    opts = PolicyOptions()
    policy = policy_class(_numa_info(_FOUR_NODES, opts), opts)
    assert policy.merge([_hints({"resource": "1+"})]).admit == preferred
    assert policy.merge([_hints({"resource": "1"})]).admit == other


def test_filter_single_numa_hints() -> None:
    given = [[_hint(text) for text in ["-", "-+", "0", "0+", "1+", "01", "01+", "none+"]], [], [_hint("01+")]]
    assert filter_single_numa_hints(given) == [[_hint("-+"), _hint("0+"), _hint("1+")], [], []]


@pytest.mark.parametrize(
    ("hints", "want"),
    [
        ([], 0),
        (["none+"], 0),
        (["0+"], 1),
        (["01+"], 2),
        (["01+ 012+"], 2),
        (["01+ 012+", "012+"], 3),
        (["01+ 012+", "012+ 0123+"], 3),
    ],
)
def test_max_of_min_affinity_counts(hints: list[str], want: int) -> None:
    assert max_of_min_affinity_counts([[_hint(text) for text in texts.split()] for texts in hints]) == want


# The columns are the best number of nodes of a hint that is not preferred, two hints, and the better one.
_COMPARE: list[tuple[int, str | None, str, str]] = [
    (-1, None, "none", "current"),
    (-1, "none+", "none", "current"),
    (-1, None, "0+", "candidate"),
    (-1, None, "0", "candidate"),
    (-1, "0", "0+", "candidate"),
    (-1, "0+", "0", "current"),
    (-1, "0+", "0+", "current"),
    (-1, "01+", "0+", "candidate"),
    (-1, "0+", "01+", "current"),
    (1, "01", "01", "current"),
    (1, "12", "01", "candidate"),
    (1, "01", "12", "current"),
    (2, "01", "0", "current"),
    (2, "01", "01", "current"),
    (2, "12", "01", "candidate"),
    (2, "01", "12", "current"),
    (2, "0", "012", "current"),
    (2, "0", "01", "candidate"),
    (3, "0", "01", "candidate"),
    (3, "0", "12", "candidate"),
    (4, "01", "123", "candidate"),
    (4, "123", "01", "current"),
    (4, "012", "012", "current"),
    (4, "012", "123", "current"),
    (4, "123", "012", "candidate"),
]


@pytest.mark.parametrize(("count", "current", "candidate", "want"), _COMPARE)
def test_compare_hints_narrowest(count: int, current: str | None, candidate: str, want: str) -> None:
    opts = PolicyOptions()
    merger = HintMerger(_numa_info((), opts), [], "best-effort", opts)
    merger.best_non_preferred_affinity_count = count
    of = {"current": None if current is None else _hint(current), "candidate": _hint(candidate)}
    assert merger.compare(of["current"], _hint(candidate)) == of[want]


def test_merged_hints_are_those_of_all_combinations() -> None:
    """The merged hints equal the distinct results of all combinations, as Go computes them."""
    dice = random.Random(7)
    masks: list[BitMask | None] = [None, BitMask(), *iterate_bit_masks([0, 1, 2])]
    everything = BitMask(0, 1, 2)
    for _ in range(300):
        given = [
            [TopologyHint(dice.choice(masks), dice.random() < 0.6) for _ in range(dice.randrange(4))]
            for _ in range(dice.randrange(5))
        ]
        want = set()
        for permutation in itertools.product(*given):
            named = [hint.numa_node_affinity for hint in permutation if hint.numa_node_affinity is not None]
            merged = everything
            for mask in named:
                merged &= mask
            preferred = all(hint.preferred for hint in permutation) and len(set(named)) < 2
            want.add(TopologyHint(merged, preferred))
        found = merged_hints(everything, given)
        assert set(found) == want and len(found) == len(want)


def test_many_nodes_and_resources_are_merged_at_once() -> None:
    """Many nodes and resources are merged fast, although there are 255**6 combinations."""
    opts = PolicyOptions()
    every = [TopologyHint(mask, mask.count() == 2) for mask in iterate_bit_masks(range(8))]
    hint = BestEffortPolicy(_numa_info(_EIGHT_NODES, opts), opts).merge([{f"r{i}": every for i in range(6)}]).hint
    assert hint == _hint("01+")
