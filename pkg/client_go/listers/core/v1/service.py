"""Read Service objects from an informer's store.

Go: k8s.io/client-go/listers/core/v1/service.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.client_go.tools import cache


class ServiceLister(cache.GenericLister[v1.Service]):
    """Read Service objects, which are shared and must not be changed."""

    def __init__(self, indexer: cache.Indexer[v1.Service]) -> None:
        super().__init__(indexer, "service")

    def services(self, namespace: str) -> cache.GenericLister[v1.Service]:
        """Return a lister for one namespace, which can get objects by name."""
        return self.by_namespace(namespace)
