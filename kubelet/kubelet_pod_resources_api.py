"""The kubelet as what tells local agents which resources containers were given.

Go: pkg/kubelet/kubelet.go (ListenAndServePodResources)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kubelet import util
from kubelet.kubelet_pods import KubeletPods
from pkg import golang, klog
from pkg.api.core import v1
from pkg.apimachinery.util import wait

if TYPE_CHECKING:
    from kubelet import config

# How long, in seconds, local agents wait for the API server to tell of its pods.
POD_RESOURCES_PATIENCE = 5.0
# How soon it is tried again to serve them, in seconds.
POD_RESOURCES_RETRY_PERIOD = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletPodResourcesAPI(KubeletPods):
    """Serves the pod resources API."""

    sources_ready: config.SourcesReady
    # Closed once the pods of all sources are known.
    all_sources_seen: golang.Channel[None] = field(default_factory=golang.Channel)

    def listen_and_serve_pod_resources(self, ctx: golang.Context) -> None:
        """Tell local agents what containers were given, until ctx ends. Without the socket the kubelet does its work.

        DIVERGES (safer): if the socket cannot be made, the kubelet runs on, and tries again later.
        Go: pkg/kubelet/server/server.go, ListenAndServePodResources: the process ends.
        Why: pods run without that socket; only agents on the node, such as those for monitoring, need it.
        Test: kubelet_faults_test.py:test_local_agents_are_served_once_that_can_be

        DIVERGES (fault of Go): the socket is made once the pods of all sources are known, or after five seconds.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).ListenAndServePodResources: it is made as soon as the kubelet starts.
        Why: an agent that asks right after a restart is told of no pods, although they run.
        Test: kubelet_test.py:test_local_agents_wait_for_the_last_source,
        kubelet_test.py:test_local_agents_are_not_served_before
        """
        self._wait_for_sources(ctx, POD_RESOURCES_PATIENCE)

        from kubelet.apis import podresources
        from kubelet.apis.podresources import server as podresources_server

        manager = self.container_manager
        providers = podresources.PodResourcesProviders(_PodsProvider(self), manager, manager, manager, manager)
        endpoint = util.local_endpoint(self.get_pod_resources_dir(), podresources.SOCKET)

        def serve() -> None:
            try:
                podresources_server.listen_and_serve_pod_resources(ctx, endpoint, providers)
            except Exception as err:
                # Pods run without, whatever it is; it may well be gone the next time.
                klog.error_s(err, "Failed to create listener for podResources endpoint", endpoint=endpoint)

        wait.until(serve, POD_RESOURCES_RETRY_PERIOD, ctx, self.clock)

    def _wait_for_sources(self, ctx: golang.Context, patience: float) -> None:
        """Until the pods of all sources are known, but no longer than so many seconds."""
        if not self.sources_ready.all_ready():
            golang.select(self.all_sources_seen, self.clock.after(patience), ctx.done())


class _PodsProvider:
    """The pods that the pod resources API tells of. Go: kubeletPodsProvider"""

    def __init__(self, kubelet: KubeletPods) -> None:
        self._kubelet = kubelet

    def get_active_pods(self) -> list[v1.Pod]:
        return self._kubelet.get_active_pods()

    def get_pods(self) -> list[v1.Pod]:
        return self._kubelet.pod_manager.get_pods()

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        pod = self._kubelet.get_pod_by_name(namespace, name)
        return pod if pod is not None and self._kubelet.filter_out_inactive_pods([pod]) else None
