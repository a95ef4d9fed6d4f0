"""Provide the informers of storage.k8s.io, version v1.

Go: k8s.io/client-go/informers/storage/v1
"""

from pkg.client_go.informers.storage.v1.csidriver import CSIDriverInformer
from pkg.client_go.informers.storage.v1.interface import Interface

__all__ = ["CSIDriverInformer", "Interface"]
