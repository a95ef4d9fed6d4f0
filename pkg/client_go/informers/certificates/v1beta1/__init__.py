"""Provide the informers of certificates.k8s.io, version v1beta1.

Go: k8s.io/client-go/informers/certificates/v1beta1
"""

from pkg.client_go.informers.certificates.v1beta1.clustertrustbundle import ClusterTrustBundleInformer
from pkg.client_go.informers.certificates.v1beta1.interface import Interface

__all__ = ["ClusterTrustBundleInformer", "Interface"]
