"""Trust anchors of ClusterTrustBundle objects, for projected volumes.

Go: pkg/kubelet/clustertrustbundle
"""

from kubelet.clustertrustbundle.clustertrustbundle_manager import Manager, NoopManager

__all__ = ["Manager", "NoopManager"]
