"""Readers of the group's version v1.

Go: k8s.io/client-go/listers/storage/v1
"""

from pkg.client_go.listers.storage.v1.csidriver import CSIDriverLister

__all__ = ["CSIDriverLister"]
