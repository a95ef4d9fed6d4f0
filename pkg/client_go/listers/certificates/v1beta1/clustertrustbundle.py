"""Read ClusterTrustBundle objects from an informer's store.

Go: k8s.io/client-go/listers/certificates/v1beta1/clustertrustbundle.go
"""

from __future__ import annotations

from pkg.api.certificates import v1beta1 as certificatesv1beta1
from pkg.client_go.tools import cache


class ClusterTrustBundleLister(cache.GenericLister[certificatesv1beta1.ClusterTrustBundle]):
    """Read ClusterTrustBundle objects, which are shared and must not be changed."""

    def __init__(self, indexer: cache.Indexer[certificatesv1beta1.ClusterTrustBundle]) -> None:
        super().__init__(indexer, "clustertrustbundle.certificates.k8s.io")
