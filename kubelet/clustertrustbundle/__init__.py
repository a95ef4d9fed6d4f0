"""Provide the trust anchors of ClusterTrustBundle objects for projected volumes.

Go: pkg/kubelet/clustertrustbundle
"""

from kubelet.clustertrustbundle.clustertrustbundle_manager import (
    InformerManager,
    LazyInformerManager,
    Manager,
    NoopManager,
    UnknownBundlesError,
)

__all__ = ["InformerManager", "LazyInformerManager", "Manager", "NoopManager", "UnknownBundlesError"]
