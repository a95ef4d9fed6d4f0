"""Provide access to the informers of storage.k8s.io, version v1, that a kubelet uses.

Go: k8s.io/client-go/informers/storage/v1/interface.go
"""

from __future__ import annotations

from pkg.client_go.informers import internalinterfaces
from pkg.client_go.informers.storage.v1.csidriver import CSIDriverInformer


class Interface:
    def __init__(self, factory: internalinterfaces.SharedInformerFactory) -> None:
        self._factory = factory

    def csi_drivers(self) -> CSIDriverInformer:
        return CSIDriverInformer(self._factory)
