"""Provide the listers of storage.k8s.io, version v1.

Go: k8s.io/client-go/listers/storage/v1
"""

from pkg.client_go.listers.storage.v1.csidriver import CSIDriverLister

__all__ = ["CSIDriverLister"]
