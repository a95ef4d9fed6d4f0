"""Provide the listers of node.k8s.io, version v1.

Go: k8s.io/client-go/listers/node/v1
"""

from pkg.client_go.listers.node.v1.runtimeclass import RuntimeClassLister

__all__ = ["RuntimeClassLister"]
