"""Provide the listers of the core API group, version v1.

Go: k8s.io/client-go/listers/core/v1
"""

from pkg.client_go.listers.core.v1.node import NodeLister
from pkg.client_go.listers.core.v1.service import ServiceLister

__all__ = ["NodeLister", "ServiceLister"]
