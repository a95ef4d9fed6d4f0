"""Find the features of a node and those that a pod requires, and compare them.

A set of features is a frozenset of names. Go uses bitmaps, for a scheduler with thousands of nodes.

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
    """Describe whether a node has all required features, and the sorted missing ones."""

    is_match: bool
    unsatisfied_requirements: tuple[str, ...] = ()


class Framework:
    """Match features.

    The class is thread-safe, because its only state is the list of known features.
    """

    def __init__(self, registry: Iterable[Feature]) -> None:
        self._registry = sorted(registry, key=lambda feature: feature.name)

    def discover_node_features(self, cfg: NodeConfiguration) -> list[str]:
        """Return the sorted names of the features that the node has."""
        return [
            feature.name
            for feature in self._registry
            if feature.discover(cfg) and not _is_outdated(feature, cfg.version)
        ]

    def infer_for_pod_scheduling(self, pod: v1.Pod, target_version: Version) -> frozenset[str]:
        """Return the features that a node of target_version needs to run the pod."""
        return frozenset(
            feature.name
            for feature in self._registry
            if not _is_outdated(feature, target_version) and feature.infer_for_scheduling(pod)
        )

    def infer_for_pod_update(self, old_pod: v1.Pod, new_pod: v1.Pod, target_version: Version) -> frozenset[str]:
        """Return the features that a node of target_version needs to apply the pod's change."""
        return frozenset(
            feature.name
            for feature in self._registry
            if not _is_outdated(feature, target_version) and feature.infer_for_update(old_pod, new_pod)
        )

    def match_node_feature_set(self, required_features: frozenset[str], node_features: frozenset[str]) -> MatchResult:
        """Compare the required features with those of a node."""
        missing = tuple(sorted(required_features - node_features))
        return MatchResult(not missing, missing)


def _is_outdated(feature: Feature, version: Version | None) -> bool:
    return version is not None and feature.max_version is not None and version > feature.max_version


DEFAULT_FRAMEWORK = Framework(ALL_FEATURES)
