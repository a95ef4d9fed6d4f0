"""Define what informers of single resources need from the factory that shares them.

Go: k8s.io/client-go/informers/internalinterfaces
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

T = TypeVar("T")

TweakListOptionsFunc = Callable[[metav1.ListOptions], metav1.ListOptions]
"""The function returns changed options for lists and watches, because the options are frozen."""

NewInformerFunc = Callable[["kubernetes.Interface", float], cache.SharedIndexInformer[Any]]
"""The function makes an informer from a client and a resync period in seconds."""


class SharedInformerFactory(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def tweak_list_options(self) -> TweakListOptionsFunc | None: ...

    def informer_for(self, object_type: type[T], new_func: NewInformerFunc) -> cache.SharedIndexInformer[T]:
        """Return the informer of this type; the first call makes it."""
        ...


def new_informer(
    client: cache.ListerWatcher[T],
    object_type: type[T],
    resync_period: float,
    tweak_list_options: TweakListOptionsFunc | None,
) -> cache.SharedIndexInformer[T]:
    """Return an informer of the client's resource, indexed by namespace."""
    lister_watcher = cache.new_filtered_list_watch_from_client(client, tweak_list_options or (lambda options: options))
    indexers: cache.Indexers = {cache.NAMESPACE_INDEX: cache.meta_namespace_index_func}
    return cache.SharedIndexInformer(lister_watcher, object_type, resync_period, indexers)
