"""Provide access to the informers of certificates.k8s.io, version v1beta1, that a kubelet uses.

Go: k8s.io/client-go/informers/certificates/v1beta1/interface.go
"""

from __future__ import annotations

from pkg.client_go.informers import internalinterfaces
from pkg.client_go.informers.certificates.v1beta1.clustertrustbundle import ClusterTrustBundleInformer


class Interface:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def cluster_trust_bundles(self) -> ClusterTrustBundleInformer:
        return ClusterTrustBundleInformer(self._factory)
