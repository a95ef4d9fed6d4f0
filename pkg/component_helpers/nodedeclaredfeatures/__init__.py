"""Declare features of nodes, and find the features that a pod requires.

Go: k8s.io/component-helpers/nodedeclaredfeatures
"""

from pkg.component_helpers.nodedeclaredfeatures.features import ALL_FEATURES
from pkg.component_helpers.nodedeclaredfeatures.framework import DEFAULT_FRAMEWORK, Framework, MatchResult
from pkg.component_helpers.nodedeclaredfeatures.types import Feature, NodeConfiguration, RuntimeFeatures

__all__ = [
    "ALL_FEATURES",
    "DEFAULT_FRAMEWORK",
    "Feature",
    "Framework",
    "MatchResult",
    "NodeConfiguration",
    "RuntimeFeatures",
]
