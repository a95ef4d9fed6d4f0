"""Look up the handler of a RuntimeClass.

Go: pkg/kubelet/runtimeclass/runtimeclass_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg import golang
from pkg.apimachinery.api import errors as apierrors

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class Manager:
    """Watch the cluster's RuntimeClasses. Any thread may call this class."""

    def __init__(self, client: kubernetes.Interface) -> None:
        # This import is late because a kubelet without an API server has no manager and need not load informers.
        from pkg.client_go import informers

        self._informer_factory = informers.SharedInformerFactory(client, 0)
        self._lister = self._informer_factory.node_v1.runtime_classes().lister()

    def start(self, ctx: golang.Context) -> None:
        """Watch the RuntimeClasses until ctx ends."""
        self._informer_factory.start(ctx)

    def wait_for_cache_sync(self, ctx: golang.Context) -> None:
        """Wait until all RuntimeClasses have been read, or ctx ends."""
        self._informer_factory.wait_for_cache_sync(ctx)

    def lookup_runtime_handler(self, runtime_class_name: str | None) -> str:
        """Return the handler, or "" without a RuntimeClass. Raise apierrors.StatusError if the class does not exist."""
        if not runtime_class_name:
            return ""
        try:
            return self._lister.get(runtime_class_name).handler
        except Exception as err:
            # After any other error the sandbox fails with a message that names the class.
            if apierrors.is_not_found(err):
                raise
            raise LookupError(f"failed to lookup RuntimeClass {runtime_class_name}: {err}") from err
