"""Define a declared feature, and the node's configuration from which its features follow.

Go: k8s.io/component-helpers/nodedeclaredfeatures/types/types.go
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pkg.api.core import v1
from pkg.apimachinery.util.version import Version


class FeatureGate(Protocol):
    """Define how to find out which gates are on."""

    def enabled(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class RuntimeFeatures:
    """Describe what the container runtime supports."""

    user_namespaces_host_network: bool = False


@dataclass(frozen=True, slots=True)
class NodeConfiguration:
    """Hold what determines a node's features."""

    feature_gates: FeatureGate
    version: Version | None = None
    runtime_features: RuntimeFeatures = field(default_factory=RuntimeFeatures)


@dataclass(frozen=True, slots=True)
class Feature:
    """Describe a feature; Go has an interface and a package for each.

    `discover` reports whether a node has the feature, `infer_for_scheduling` whether a pod needs it, and
    `infer_for_update` whether the change of a pod needs it. In versions after `max_version`, every node has the
    feature, and none declares it.
    """

    name: str
    discover: Callable[[NodeConfiguration], bool]
    infer_for_scheduling: Callable[[v1.Pod], bool]
    max_version: Version | None = None
    infer_for_update: Callable[[v1.Pod, v1.Pod], bool] = lambda old, new: False
