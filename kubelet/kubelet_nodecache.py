"""The newest node object that the kubelet has seen.

Go: pkg/kubelet/kubelet_nodecache.go
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kubelet.kubelet_node_status import KubeletNodeStatus
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors

# Seconds that the API server has to answer. Go sets no limit.
SYNC_GET_TIMEOUT = 10.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletNodeCache(KubeletNodeStatus):
    """The node as admission asks for it: a pod may have been placed by a node that the informer has yet to see."""

    # The newest node that the API server is known to have; replaced as a whole, as is the node of standalone mode.
    cached_node: v1.Node | None = None
    # Held while the one above is compared and replaced, by a thread that admits pods or one that reports the status.
    cached_node_mux: threading.Lock = field(default_factory=threading.Lock)

    def get_cached_node(self, ctx: golang.Context, use_cache: bool) -> v1.Node:
        """The node as it is known, or as the API server has it now; not to be changed.

        Raises what the API server says, if it is asked, and TimeoutError after SYNC_GET_TIMEOUT.
        """
        return self._get_cached_node(ctx) if use_cache else self._get_node_sync(ctx)

    def _get_cached_node(self, ctx: golang.Context) -> v1.Node:
        try:
            informer_node = self.get_node(ctx)
        except apierrors.StatusError as err:
            if (cached := self.cached_node) is None:
                return self.initial_node(ctx)
            klog.error_s(err, "failed to list node; using cached node")
            return cached
        with self.cached_node_mux:
            if self.cached_node is None or self._is_newer(informer_node, self.cached_node):
                self.cached_node = informer_node
            return self.cached_node

    def _get_node_sync(self, ctx: golang.Context) -> v1.Node:
        if self.kube_client is None:
            return self.get_node(ctx)
        # Admission asks on the sync loop, for one pod: the others must not wait for a server that is frozen.
        limited, cancel = golang.with_timeout(ctx, SYNC_GET_TIMEOUT)
        try:
            node = self.kube_client.core_v1.nodes().get(limited, self.node_name)
        except golang.DeadlineExceeded as err:
            ctx.raise_if_done()
            raise TimeoutError(f'get node "{self.node_name}": no answer within {SYNC_GET_TIMEOUT:g}s') from err
        finally:
            cancel()
        self._take_over(node)
        return node

    def _patch_node_status(self, ctx: golang.Context, original: v1.Node, node: v1.Node) -> v1.Node:
        """Report the status, and keep the node as the API server answers it.

        DIVERGES (fault of Go): what the kubelet has just reported of its node counts at once when pods are admitted.
        Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).patchNodeStatus: it counts once the informer has seen it.
        Why: a pod that was scheduled by the report would be refused for want of a resource that the node has.
        Test: kubelet_node_status_test.py:test_what_was_reported_is_known_before_the_informer_sees_it
        """
        updated = super()._patch_node_status(ctx, original, node)
        self._take_over(updated)
        return updated

    def _take_over(self, node: v1.Node) -> None:
        """Keep what the API server has answered, whatever its version: the versions go back when the server is given
        back an older state of its storage. Where the informer is ahead of the answer, the next look finds that out.
        """
        with self.cached_node_mux:
            self.cached_node = node

    def _is_newer(self, informer_node: v1.Node, cached_node: v1.Node) -> bool:
        """By resource version; the informer is believed where they cannot be compared."""
        try:
            return int(informer_node.metadata.resource_version) > int(cached_node.metadata.resource_version)
        except ValueError as err:
            if self.kube_client is not None:
                klog.error_s(err, "failed to check if node is newer; using informer node")
            return True
