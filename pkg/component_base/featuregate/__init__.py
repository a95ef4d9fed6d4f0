"""Turn features on and off that are not yet, or no longer, a fixed part of the kubelet.

Go: k8s.io/component-base/featuregate
"""

from pkg.component_base.featuregate.feature_gate import (
    ALL_ALPHA,
    ALL_BETA,
    FeatureGate,
    FeatureGateError,
    FeatureSpec,
    PreRelease,
    parse_feature_gates,
)

__all__ = [
    "ALL_ALPHA",
    "ALL_BETA",
    "FeatureGate",
    "FeatureGateError",
    "FeatureSpec",
    "PreRelease",
    "parse_feature_gates",
]
