"""Informers of the API server's resources, one per resource and factory however many ask for it.

Go: k8s.io/client-go/informers
"""

from pkg.client_go.informers.factory import SharedInformerFactory

__all__ = ["SharedInformerFactory"]
