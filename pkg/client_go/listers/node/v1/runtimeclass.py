"""Read RuntimeClass objects from an informer's store.

Go: k8s.io/client-go/listers/node/v1/runtimeclass.go
"""

from __future__ import annotations

from pkg.api.node import v1 as nodev1
from pkg.client_go.tools import cache


class RuntimeClassLister(cache.GenericLister[nodev1.RuntimeClass]):
    """Read RuntimeClass objects, which are shared and must not be changed."""

    def __init__(self, indexer: cache.Indexer[nodev1.RuntimeClass]) -> None:
        super().__init__(indexer, "runtimeclass.node.k8s.io")
