"""Provide the informers of node.k8s.io, version v1.

Go: k8s.io/client-go/informers/node/v1
"""

from pkg.client_go.informers.node.v1.interface import Interface
from pkg.client_go.informers.node.v1.runtimeclass import RuntimeClassInformer

__all__ = ["Interface", "RuntimeClassInformer"]
