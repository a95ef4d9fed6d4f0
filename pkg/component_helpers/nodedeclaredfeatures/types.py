"""What a declared feature is, and what a node tells of itself to find those that it has.

Go: k8s.io/component-helpers/nodedeclaredfeatures/types/types.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pkg.api.core import v1
from pkg.apimachinery.util.version import Version


class FeatureGate(Protocol):
    """Knows which gates are on."""

    def enabled(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """What the container runtime can do."""

    user_namespaces_host_network: bool = False


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """What decides which features a node has."""

    feature_gates: FeatureGate
    version: Version | None = None
    runtime_features: RuntimeFeatures = field(default_factory=RuntimeFeatures)


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature; Go has an interface and a package for each.

    discover tells whether a node has it, infer_for_scheduling whether a pod needs it, infer_for_update whether the
    change from one pod to another does. After max_version, if there is one, each node has it, and none declares it.
    """

    name: str
    discover: Callable[[NodeConfiguration], bool]
    infer_for_scheduling: Callable[[v1.Pod], bool]
    max_version: Version | None = None
    infer_for_update: Callable[[v1.Pod, v1.Pod], bool] = lambda old, new: False
