"""Define the summary of a node's and its pods' usage, version v1alpha1.

Go: k8s.io/kubelet/pkg/apis/stats/v1alpha1
"""

from kubelet.apis.stats.v1alpha1 import types as _types
from kubelet.apis.stats.v1alpha1.types import *  # noqa: F403

__all__ = _types.__all__
