"""Provide access to the informers of the core API group, version v1, that a kubelet uses.

Go: k8s.io/client-go/informers/core/v1/interface.go
"""

from __future__ import annotations

from pkg.client_go.informers import internalinterfaces
from pkg.client_go.informers.core.v1.node import NodeInformer
from pkg.client_go.informers.core.v1.service import ServiceInformer


class Interface:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def nodes(self) -> NodeInformer:
        return NodeInformer(self._factory)

    def services(self) -> ServiceInformer:
        return ServiceInformer(self._factory)
