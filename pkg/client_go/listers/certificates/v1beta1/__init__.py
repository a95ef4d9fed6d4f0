"""Provide the listers of certificates.k8s.io, version v1beta1.

Go: k8s.io/client-go/listers/certificates/v1beta1
"""

from pkg.client_go.listers.certificates.v1beta1.clustertrustbundle import ClusterTrustBundleLister

__all__ = ["ClusterTrustBundleLister"]
