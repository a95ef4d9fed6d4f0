"""Define the feature gates of release 1.36, and the process-wide gate that holds their values.

`features.feature_gate.enabled(features.EVENTED_PLEG)` reads a gate. `--feature-gates` and the configuration's
`featureGates` set gates.

Go: pkg/features
"""

from pkg.features.kube_features import *  # noqa: F403
from pkg.features.kube_features import DEFAULT_KUBERNETES_FEATURE_GATES, feature_gate

__all__ = ["DEFAULT_KUBERNETES_FEATURE_GATES", "feature_gate"]
