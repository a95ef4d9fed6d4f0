"""Provide the informers of the core API group, version v1.

Go: k8s.io/client-go/informers/core/v1
"""

from pkg.client_go.informers.core.v1.interface import Interface
from pkg.client_go.informers.core.v1.node import NodeInformer
from pkg.client_go.informers.core.v1.service import ServiceInformer

__all__ = ["Interface", "NodeInformer", "ServiceInformer"]
