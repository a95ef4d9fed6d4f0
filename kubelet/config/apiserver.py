"""Watch the pods that the API server has bound to this node.

Go: pkg/kubelet/config/apiserver.go
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubelet import types as kubetypes
from pkg import golang, klog
from pkg.api.core import v1

if TYPE_CHECKING:
    # Only a kubelet with an API server loads these modules.
    from pkg.client_go import kubernetes
    from pkg.client_go.tools import cache


def new_source_apiserver(
    ctx: golang.Context,
    client: kubernetes.Interface,
    node_name: str,
    node_has_synced: Callable[[], bool],
    updates: golang.Channel[kubetypes.PodUpdate],
) -> None:
    """Watch the node's pods until ctx ends, and begin once the kubelet has received its Node object.

    Pod admission checks the node's labels and taints, so the pods must not arrive before the node.
    """
    from pkg.client_go.tools import cache

    selector = f"spec.nodeName={node_name}"
    lister_watcher = cache.new_list_watch_from_client(client.core_v1.pods("").without_time_limits(), selector)

    def watch_when_node_is_known() -> None:
        if not cache.wait_for_cache_sync(ctx, node_has_synced):
            return
        klog.v(4).info_s("node sync completed")
        klog.info_s("Watching apiserver")
        _run_source(ctx, lister_watcher, updates)

    klog.info_s("Waiting for node sync before watching apiserver pods")
    golang.go(watch_when_node_is_known, name="config-api")


def _run_source(
    ctx: golang.Context, lister_watcher: cache.ListWatch[v1.Pod], updates: golang.Channel[kubetypes.PodUpdate]
) -> None:
    """Send all pods of the source each time one of them changes, until ctx ends.

    Go: newSourceApiserverFromLW
    """
    from pkg.client_go.tools import cache

    def send(pods: list[v1.Pod]) -> None:
        try:
            updates.send(kubetypes.PodUpdate(list(pods), kubetypes.SET, kubetypes.APISERVER_SOURCE), ctx)
        except golang.ContextError:
            klog.v(4).info_s("Stopped sending pods of the API server")

    store = cache.UndeltaStore(send, cache.meta_namespace_key_func)
    cache.Reflector(lister_watcher, v1.Pod, store, name="config-api").run(ctx)
