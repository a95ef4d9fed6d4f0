"""Provide the shared informer of ClusterTrustBundle objects.

Go: k8s.io/client-go/informers/certificates/v1beta1/clustertrustbundle.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.api.certificates import v1beta1 as certificatesv1beta1
from pkg.client_go.informers import internalinterfaces
from pkg.client_go.listers.certificates import v1beta1 as certificateslisters
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class ClusterTrustBundleInformer:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def informer(self) -> cache.SharedIndexInformer[certificatesv1beta1.ClusterTrustBundle]:
        return self._factory.informer_for(certificatesv1beta1.ClusterTrustBundle, self._new_informer)

    def lister(self) -> certificateslisters.ClusterTrustBundleLister:
        return certificateslisters.ClusterTrustBundleLister(self.informer().get_indexer())

    def _new_informer(
        self, client: kubernetes.Interface, resync_period: float
    ) -> cache.SharedIndexInformer[certificatesv1beta1.ClusterTrustBundle]:
        resource, tweak = client.certificates_v1beta1.cluster_trust_bundles(), self._factory.tweak_list_options
        return internalinterfaces.new_informer(resource, certificatesv1beta1.ClusterTrustBundle, resync_period, tweak)
