"""Merge the hints of several providers into one.

Go: pkg/kubelet/cm/topologymanager/policy.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubelet.cm.topologymanager.bitmask import BitMask
from kubelet.cm.topologymanager.hints import Hints, TopologyHint
from kubelet.cm.topologymanager.numa_info import NUMAInfo
from kubelet.cm.topologymanager.policy_options import PolicyOptions
from pkg import klog

POLICY_SINGLE_NUMA_NODE = "single-numa-node"


@dataclass(frozen=True, slots=True)
class MergedHint:
    """Hold the best hint that all providers can follow."""

    hint: TopologyHint
    # This field says whether the hint is good enough to admit the pod.
    admit: bool


class Policy(Protocol):
    """Define how to choose the NUMA nodes that provide all resources of a container or pod."""

    def name(self) -> str: ...

    def merge(self, providers_hints: Sequence[Hints]) -> MergedHint: ...


def is_alignment_guaranteed(policy: Policy) -> bool:
    """Report whether each admitted pod or container has all its resources from one node."""
    return policy.name() == POLICY_SINGLE_NUMA_NODE


def filter_providers_hints(providers_hints: Iterable[Hints]) -> list[list[TopologyHint]]:
    """Return a list of hints for each resource of each provider.

    A provider or resource without a preference gets a preferred hint without nodes. A resource that no nodes can
    provide gets a hint without nodes that is not preferred.
    """
    all_hints: list[list[TopologyHint]] = []
    for hints in providers_hints:
        if not hints:
            klog.info_s("Hint Provider has no preference for NUMA affinity with any resource")
            all_hints.append([TopologyHint(None, True)])
        for resource, possible in hints.items():
            if possible is None:
                klog.info_s("Hint Provider has no preference for NUMA affinity with resource", resource=resource)
                all_hints.append([TopologyHint(None, True)])
            elif not possible:
                klog.info_s("Hint Provider has no possible NUMA affinities for resource", resource=resource)
                all_hints.append([TopologyHint(None, False)])
            else:
                all_hints.append(possible)
    return all_hints


def max_of_min_affinity_counts(filtered_hints: Iterable[Iterable[TopologyHint]]) -> int:
    """Return the largest number of nodes that any resource needs at least."""
    counts = [
        [hint.numa_node_affinity.count() for hint in hints if hint.numa_node_affinity is not None]
        for hints in filtered_hints
    ]
    return max((min(of_one) for of_one in counts if of_one), default=0)


def merged_hints(default_affinity: BitMask, all_hints: Iterable[Sequence[TopologyHint]]) -> list[TopologyHint]:
    """Merge one hint of each resource, for all combinations, and return the distinct results.

    The nodes of a result are those that all its hints have in common. A result is preferred if all its hints are, and
    name the same nodes.

    Go tries all combinations, which are millions on a machine with many nodes. Combinations that begin alike have few
    distinct results, so this function keeps the distinct results for the resources so far.
    """
    # A state consists of the common nodes so far, the nodes that further hints must name for a preferred result, and
    # whether the result is still preferred.
    states: dict[tuple[BitMask, BitMask | None, bool], None] = {(default_affinity, None, True): None}
    for hints in all_hints:
        states = dict.fromkeys(_with_hint(state, hint) for state in states for hint in hints)
    return list(dict.fromkeys(TopologyHint(mask, preferred) for mask, _, preferred in states))


def _with_hint(state: tuple[BitMask, BitMask | None, bool], hint: TopologyHint) -> tuple[BitMask, BitMask | None, bool]:
    merged, first, preferred = state
    affinity = hint.numa_node_affinity
    if affinity is not None:
        merged &= affinity
        preferred = preferred and first in (None, affinity)
    preferred = preferred and hint.preferred
    return merged, (first or affinity) if preferred else None, preferred


class HintMerger:
    """Find the best of all merged hints."""

    def __init__(
        self,
        numa_info: NUMAInfo,
        hints: Sequence[Sequence[TopologyHint]],
        policy_name: str,
        opts: PolicyOptions,
    ) -> None:
        self._numa_info = numa_info
        self._hints = hints
        closest = policy_name != POLICY_SINGLE_NUMA_NODE and opts.prefer_closest_numa
        self._best_mask = numa_info.closest if closest else numa_info.narrowest
        # A hint that is not preferred should name this many nodes, so that the resource that needs the most nodes fits
        # on them.
        self.best_non_preferred_affinity_count = max_of_min_affinity_counts(hints)

    def _fitter(self, current: TopologyHint, candidate: TopologyHint) -> TopologyHint:
        mine, others = _affinity(current), _affinity(candidate)
        return current if mine == others or self._best_mask(mine, others) == mine else candidate

    def compare(self, current: TopologyHint | None, candidate: TopologyHint) -> TopologyHint | None:
        """Return the better of the two hints. A hint without nodes does not count."""
        count = _affinity(candidate).count()
        if count == 0:
            return current
        if current is None:
            return candidate
        if current.preferred != candidate.preferred:
            return current if current.preferred else candidate
        if current.preferred:
            return self._fitter(current, candidate)
        # Neither hint is preferred. The best number of nodes is `best`, then the closest lower number. The fitter hint
        # wins if both have equally many nodes, or if the current hint exceeds `best`.
        best, current_count = self.best_non_preferred_affinity_count, _affinity(current).count()
        if current_count == count or current_count > best:
            return self._fitter(current, candidate)
        if current_count == best or count > best:
            return current
        return candidate if count > current_count else current

    def merge(self) -> TopologyHint:
        default_affinity = self._numa_info.default_affinity_mask()
        best_hint: TopologyHint | None = None
        for hint in merged_hints(default_affinity, self._hints):
            best_hint = self.compare(best_hint, hint)
        return TopologyHint(default_affinity, False) if best_hint is None else best_hint


def _affinity(hint: TopologyHint) -> BitMask:
    assert hint.numa_node_affinity is not None, "a merged hint names nodes"
    return hint.numa_node_affinity
