"""Provide the shared informer of Node objects.

Go: k8s.io/client-go/informers/core/v1/node.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg.api.core import v1
from pkg.client_go.informers import internalinterfaces
from pkg.client_go.listers.core import v1 as corelisters
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class NodeInformer:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def informer(self) -> cache.SharedIndexInformer[v1.Node]:
        return self._factory.informer_for(v1.Node, self._new_informer)

    def lister(self) -> corelisters.NodeLister:
        return corelisters.NodeLister(self.informer().get_indexer())

    def _new_informer(self, client: kubernetes.Interface, resync_period: float) -> cache.SharedIndexInformer[v1.Node]:
        resource, tweak = client.core_v1.nodes(), self._factory.tweak_list_options
        return internalinterfaces.new_informer(resource, v1.Node, resync_period, tweak)
