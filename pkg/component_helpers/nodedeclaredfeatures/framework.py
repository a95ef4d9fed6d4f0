"""Which features a node has, which a pod needs, and whether the one has what the other needs.

Sets of features are frozensets of names. Go has bitmaps, for a scheduler with thousands of nodes.

Go: k8s.io/component-helpers/nodedeclaredfeatures/framework.go
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pkg.api.core import v1
from pkg.apimachinery.util.version import Version
from pkg.component_helpers.nodedeclaredfeatures.features import ALL_FEATURES
from pkg.component_helpers.nodedeclaredfeatures.types import Feature, NodeConfiguration


@dataclass(frozen=True, slots=True)
class MatchResult:
    """Whether a node has all that is needed, and what it lacks, sorted."""

    is_match: bool
    unsatisfied_requirements: tuple[str, ...] = ()


class Framework:
    """Has no state but the features it knows. Thread-safe."""

    def __init__(self, registry: Iterable[Feature]) -> None:
        self._registry = sorted(registry, key=lambda feature: feature.name)

    def discover_node_features(self, cfg: NodeConfiguration) -> list[str]:
        """The names of the features that the node has, sorted."""
        return [
            feature.name
            for feature in self._registry
            if feature.discover(cfg) and not _is_outdated(feature, cfg.version)
        ]

    def infer_for_pod_scheduling(self, pod: v1.Pod, target_version: Version) -> frozenset[str]:
        """The features without which a node of target_version cannot run the pod."""
        return frozenset(
            feature.name
            for feature in self._registry
            if not _is_outdated(feature, target_version) and feature.infer_for_scheduling(pod)
        )

    def infer_for_pod_update(self, old_pod: v1.Pod, new_pod: v1.Pod, target_version: Version) -> frozenset[str]:
        """The features without which a node of target_version cannot make of the one pod the other."""
        return frozenset(
            feature.name
            for feature in self._registry
            if not _is_outdated(feature, target_version) and feature.infer_for_update(old_pod, new_pod)
        )

    def match_node_feature_set(self, required_features: frozenset[str], node_features: frozenset[str]) -> MatchResult:
        """Whether a node that has node_features has what is required."""
        missing = tuple(sorted(required_features - node_features))
        return MatchResult(not missing, missing)


def _is_outdated(feature: Feature, version: Version | None) -> bool:
    return version is not None and feature.max_version is not None and version > feature.max_version


DEFAULT_FRAMEWORK = Framework(ALL_FEATURES)
