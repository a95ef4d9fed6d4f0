"""Make, share and start informers.

Go: k8s.io/client-go/informers/factory.go
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from pkg import golang
from pkg.client_go.informers import internalinterfaces
from pkg.client_go.informers.certificates import v1beta1 as certificates_v1beta1
from pkg.client_go.informers.core import v1 as core
from pkg.client_go.informers.node import v1 as node
from pkg.client_go.informers.storage import v1 as storage
from pkg.client_go.tools import cache

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

T = TypeVar("T")


class SharedInformerFactory:
    """Share informers.

    All methods are thread-safe. An informer that is requested after start runs only after another start.
    """

    def __init__(
        self,
        client: kubernetes.Interface,
        default_resync: float,
        namespace: str = "",
        tweak_list_options: internalinterfaces.TweakListOptionsFunc | None = None,
    ) -> None:
        """Prepare a factory.

        The resync period is in seconds (0 means none), namespace "" means all, and tweak_list_options changes the
        options of every list and watch.
        """
        self.namespace = namespace
        self.tweak_list_options = tweak_list_options
        self._client = client
        self._default_resync = default_resync
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._informers: dict[type, cache.SharedIndexInformer[Any]] = {}
        self._started: dict[type, golang.Thread] = {}
        self._shutting_down = False

    @property
    def core_v1(self) -> core.Interface:
        return core.Interface(self)

    @property
    def storage_v1(self) -> storage.Interface:
        return storage.Interface(self)

    @property
    def certificates_v1beta1(self) -> certificates_v1beta1.Interface:
        return certificates_v1beta1.Interface(self)

    @property
    def node_v1(self) -> node.Interface:
        return node.Interface(self)

    def start(self, ctx: golang.Context) -> None:
        """Run each informer that does not run yet in a new thread, until ctx is done."""
        with self._lock:
            if self._shutting_down:
                return
            for object_type, informer in self._informers.items():
                if object_type not in self._started:
                    name = f"informer-{object_type.__name__}"
                    self._started[object_type] = golang.go(informer.run, ctx, name=name)

    def shutdown(self) -> None:
        """Start no further informers, and wait for the running ones to end.

        The caller must end the context of start.
        """
        with self._lock:
            self._shutting_down = True
            threads = list(self._started.values())
        for thread in threads:
            thread.join()

    def wait_for_cache_sync(self, ctx: golang.Context) -> dict[type, bool]:
        """Wait until every started informer has synced or ctx is done, and return which informers have synced."""
        with self._lock:
            informers = {object_type: self._informers[object_type] for object_type in self._started}
        cache.wait_for(ctx, *informers.values())
        return {object_type: informer.has_synced() for object_type, informer in informers.items()}

    def informer_for(
        self, object_type: type[T], new_func: internalinterfaces.NewInformerFunc
    ) -> cache.SharedIndexInformer[T]:
        """Return the informer of this type; the first call makes it."""
        with self._lock:
            if object_type not in self._informers:
                self._informers[object_type] = new_func(self._client, self._default_resync)
            return self._informers[object_type]
