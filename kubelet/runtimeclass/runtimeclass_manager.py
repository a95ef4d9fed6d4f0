"""Looks up the handler of a RuntimeClass.

Go: pkg/kubelet/runtimeclass/runtimeclass_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pkg import golang
from pkg.apimachinery.api import errors as apierrors

if TYPE_CHECKING:
    from pkg.client_go import kubernetes


class Manager:
    """Knows the cluster's RuntimeClasses once it is started. Safe from any thread."""

    def __init__(self, client: kubernetes.Interface) -> None:
        # Without an API server the kubelet has no manager, and does not load this.
        from pkg.client_go import informers

        self._informer_factory = informers.SharedInformerFactory(client, 0)
        self._lister = self._informer_factory.node_v1.runtime_classes().lister()

    def start(self, ctx: golang.Context) -> None:
        """Watch the RuntimeClasses until ctx ends."""
        self._informer_factory.start(ctx)

    def wait_for_cache_sync(self, ctx: golang.Context) -> None:
        """Wait until all of them have been read, or ctx ends."""
        self._informer_factory.wait_for_cache_sync(ctx)

    def lookup_runtime_handler(self, runtime_class_name: str | None) -> str:
        """The handler, "" for no RuntimeClass. Raises apierrors.StatusError, not found."""
        if not runtime_class_name:
            return ""
        try:
            return self._lister.get(runtime_class_name).handler
        except Exception as err:
            # Whatever the lister has besides: the sandbox fails, and says which class it wanted.
            if apierrors.is_not_found(err):
                raise
            raise LookupError(f"failed to lookup RuntimeClass {runtime_class_name}: {err}") from err
