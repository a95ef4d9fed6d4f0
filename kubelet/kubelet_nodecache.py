"""Keep the newest node object that the kubelet has seen.

Go: pkg/kubelet/kubelet_nodecache.go
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kubelet.kubelet_node_status import KubeletNodeStatus
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.api import errors as apierrors

# The API server has this many seconds to respond. Go sets no limit.
SYNC_GET_TIMEOUT = 10.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletNodeCache(KubeletNodeStatus):
    """Provide the node object for admission.

    The scheduler may have placed a pod on the basis of a node object that the informer has not received yet.
    """

    # `cached_node` is the newest node object that is known from the API server. It is never modified, only replaced.
    cached_node: v1.Node | None = None
    # Hold this lock to compare and replace `cached_node`, in the thread that admits pods or in the one that reports the
    # status.
    cached_node_mux: threading.Lock = field(default_factory=threading.Lock)

    def get_cached_node(self, ctx: golang.Context, use_cache: bool) -> v1.Node:
        """Return the newest known node, or the API server's current one. The caller must not modify it.

        If the API server is asked, raise its error, or TimeoutError after SYNC_GET_TIMEOUT.
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
        # Admission runs in the sync loop, so all other pods would wait for an API server that hangs.
        limited, cancel = golang.with_timeout(ctx, SYNC_GET_TIMEOUT)
        try:
            node = self.kube_client.core_v1.nodes().get(limited, self.node_name)
        except golang.DeadlineExceeded as err:
            ctx.raise_if_done()
            raise TimeoutError(f'get node "{self.node_name}": no response within {SYNC_GET_TIMEOUT:g}s') from err
        finally:
            cancel()
        self._take_over(node)
        return node

    def _patch_node_status(self, ctx: golang.Context, original: v1.Node, node: v1.Node) -> v1.Node:
        """Report the status, and keep the node from the API server's response.

        DIVERGES (fault of Go): admission at once uses the status that the kubelet has just reported.
        Go: pkg/kubelet/kubelet_node_status.go, (*Kubelet).patchNodeStatus: admission uses it once the informer has seen
        it.
        Why: the kubelet would reject a pod that was scheduled because of the report, for lack of a resource that the
        node has.
        Test: kubelet_node_status_test.py:test_what_was_reported_is_known_before_the_informer_sees_it
        """
        updated = super()._patch_node_status(ctx, original, node)
        self._take_over(updated)
        return updated

    def _take_over(self, node: v1.Node) -> None:
        """Keep the node in the API server's response, whatever its resource version is.

        Versions go backwards when the API server's storage is restored from a backup. If the informer is ahead of the
        response, the next get_cached_node notices that.
        """
        with self.cached_node_mux:
            self.cached_node = node

    def _is_newer(self, informer_node: v1.Node, cached_node: v1.Node) -> bool:
        """Compare the resource versions; prefer the informer's node if they are not comparable."""
        try:
            return int(informer_node.metadata.resource_version) > int(cached_node.metadata.resource_version)
        except ValueError as err:
            if self.kube_client is not None:
                klog.error_s(err, "failed to check if node is newer; using informer node")
            return True
