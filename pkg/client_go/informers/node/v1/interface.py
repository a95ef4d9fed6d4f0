"""Provide access to the informers of node.k8s.io, version v1, that a kubelet uses.

Go: k8s.io/client-go/informers/node/v1/interface.go
"""

from __future__ import annotations

from pkg.client_go.informers import internalinterfaces
from pkg.client_go.informers.node.v1.runtimeclass import RuntimeClassInformer


class Interface:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def runtime_classes(self) -> RuntimeClassInformer:
        return RuntimeClassInformer(self._factory)
