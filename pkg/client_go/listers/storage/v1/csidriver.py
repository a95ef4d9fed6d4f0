"""Read CSIDriver objects from an informer's store.

Go: k8s.io/client-go/listers/storage/v1/csidriver.go
"""

from __future__ import annotations

from pkg.api.storage import v1 as storagev1
from pkg.client_go.tools import cache


class CSIDriverLister(cache.GenericLister[storagev1.CSIDriver]):
    """Read CSIDriver objects, which are shared and must not be changed."""

    def __init__(self, indexer: cache.Indexer[storagev1.CSIDriver]) -> None:
        super().__init__(indexer, "csidriver.storage.k8s.io")
