"""Provide the shared informer of RuntimeClass objects.

Go: k8s.io/client-go/informers/node/v1/runtimeclass.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.api.node import v1 as nodev1
from pkg.client_go.informers import internalinterfaces
from pkg.client_go.listers.node import v1 as nodelisters
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class RuntimeClassInformer:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def informer(self) -> cache.SharedIndexInformer[nodev1.RuntimeClass]:
        return self._factory.informer_for(nodev1.RuntimeClass, self._new_informer)

    def lister(self) -> nodelisters.RuntimeClassLister:
        return nodelisters.RuntimeClassLister(self.informer().get_indexer())

    def _new_informer(
        self, client: kubernetes.Interface, resync_period: float
    ) -> cache.SharedIndexInformer[nodev1.RuntimeClass]:
        resource, tweak = client.node_v1.runtime_classes(), self._factory.tweak_list_options
        return internalinterfaces.new_informer(resource, nodev1.RuntimeClass, resync_period, tweak)
