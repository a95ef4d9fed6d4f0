"""Provide informers of API resources; all users of a factory share one informer per resource.

Go: k8s.io/client-go/informers
"""

from pkg.client_go.informers.factory import SharedInformerFactory

__all__ = ["SharedInformerFactory"]
