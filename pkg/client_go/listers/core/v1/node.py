"""Read Node objects from an informer's store.

Go: k8s.io/client-go/listers/core/v1/node.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.client_go.tools import cache


class NodeLister(cache.GenericLister[v1.Node]):
    """Read Node objects, which are shared and must not be changed."""

    def __init__(self, indexer: cache.Indexer[v1.Node]) -> None:
        super().__init__(indexer, "node")
