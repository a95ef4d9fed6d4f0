"""Provide the shared informer of CSIDriver objects.

Go: k8s.io/client-go/informers/storage/v1/csidriver.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.api.storage import v1 as storagev1
from pkg.client_go.informers import internalinterfaces
from pkg.client_go.listers.storage import v1 as storagelisters
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class CSIDriverInformer:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def informer(self) -> cache.SharedIndexInformer[storagev1.CSIDriver]:
        return self._factory.informer_for(storagev1.CSIDriver, self._new_informer)

    def lister(self) -> storagelisters.CSIDriverLister:
        return storagelisters.CSIDriverLister(self.informer().get_indexer())

    def _new_informer(
        self, client: kubernetes.Interface, resync_period: float
    ) -> cache.SharedIndexInformer[storagev1.CSIDriver]:
        resource, tweak = client.storage_v1.csi_drivers(), self._factory.tweak_list_options
        return internalinterfaces.new_informer(resource, storagev1.CSIDriver, resync_period, tweak)
