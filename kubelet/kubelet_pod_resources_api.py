"""Serve the pod resources API, which tells local agents the resources of containers.

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

# Local agents wait at most this long, in seconds, until the API server has reported its pods.
POD_RESOURCES_PATIENCE = 5.0
# After a failure the kubelet tries again to serve local agents at this interval, in seconds.
POD_RESOURCES_RETRY_PERIOD = 60.0


@dataclass(kw_only=True, eq=False, repr=False)
class KubeletPodResourcesAPI(KubeletPods):
    """Serve the pod resources API."""

    sources_ready: config.SourcesReady
    # This channel is closed once the pods of all sources are known.
    all_sources_seen: golang.Channel[None] = field(default_factory=golang.Channel)

    def listen_and_serve_pod_resources(self, ctx: golang.Context) -> None:
        """Serve the pod resources API until ctx ends. The kubelet keeps working without the socket.

        DIVERGES (safer): if the socket cannot be created, the kubelet keeps running and tries again later.
        Go: pkg/kubelet/server/server.go, ListenAndServePodResources: the process ends.
        Why: pods run without that socket; only agents on the node, for example for monitoring, need it.
        Test: kubelet_faults_test.py:test_local_agents_are_served_once_that_can_be

        DIVERGES (fault of Go): the kubelet creates the socket once the pods of all sources are known, or after five
        seconds.
        Go: pkg/kubelet/kubelet.go, (*Kubelet).ListenAndServePodResources: the Go kubelet creates it as soon as it
        starts.
        Why: an agent that calls right after a restart would see no pods, although they run.
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
                # Pods run without the socket, and the next attempt may succeed.
                klog.error_s(err, "Failed to create listener for podResources endpoint", endpoint=endpoint)

        wait.until(serve, POD_RESOURCES_RETRY_PERIOD, ctx, self.clock)

    def _wait_for_sources(self, ctx: golang.Context, patience: float) -> None:
        """Wait until the pods of all sources are known, but at most `patience` seconds."""
        if not self.sources_ready.all_ready():
            golang.select(self.all_sources_seen, self.clock.after(patience), ctx.done())


class _PodsProvider:
    """Provide the pods for the pod resources API.

    Go: kubeletPodsProvider
    """

    def __init__(self, kubelet: KubeletPods) -> None:
        self._kubelet = kubelet

    def get_active_pods(self) -> list[v1.Pod]:
        return self._kubelet.get_active_pods()

    def get_pods(self) -> list[v1.Pod]:
        return self._kubelet.pod_manager.get_pods()

    def get_pod_by_name(self, namespace: str, name: str) -> v1.Pod | None:
        pod = self._kubelet.get_pod_by_name(namespace, name)
        return pod if pod is not None and self._kubelet.filter_out_inactive_pods([pod]) else None
