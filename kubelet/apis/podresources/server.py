"""Serve the pod resources API.

Go: pkg/kubelet/server/server.go (ListenAndServePodResources)
"""

from __future__ import annotations

import contextlib

import grpc

from kubelet import util
from kubelet.apis import grpc as apisgrpc
from kubelet.apis.podresources import constants
from kubelet.apis.podresources.server_v1 import V1PodResourcesServer
from kubelet.apis.podresources.server_v1alpha1 import V1alpha1PodResourcesServer
from kubelet.apis.podresources.types import PodResourcesProviders
from kubelet.apis.podresources.v1 import api_pb2_grpc as v1
from kubelet.apis.podresources.v1alpha1 import api_pb2_grpc as v1alpha1
from pkg import golang, klog

# The server serves this number of requests at once.
_AT_ONCE = 2


def listen_and_serve_pod_resources(ctx: golang.Context, endpoint: str, providers: PodResourcesProviders) -> None:
    """Serve on this socket until ctx ends. A socket that another kubelet left behind is replaced.

    Raise OSError if the socket cannot be created, and golang.ThreadError.
    """
    with contextlib.ExitStack() as ends:
        pool = apisgrpc.new_thread_pool(_AT_ONCE, "pod-resources")
        ends.callback(pool.shutdown)
        timeouts = apisgrpc.RequestTimeouts("pod-resources-requests", _AT_ONCE)
        ends.callback(timeouts.close)
        limiter = apisgrpc.with_rate_limiter("podresources", constants.DEFAULT_QPS, constants.DEFAULT_BURST_TOKENS)
        server = grpc.server(pool, interceptors=[timeouts, limiter])
        ends.callback(lambda: server.stop(None).wait())
        v1alpha1.add_PodResourcesListerServicer_to_server(V1alpha1PodResourcesServer(providers), server)
        v1.add_PodResourcesListerServicer_to_server(V1PodResourcesServer(providers), server)
        with util.create_listener(endpoint, lambda address: _listen(server, address)):
            klog.info_s("Starting to serve the podresources API", endpoint=endpoint)
            ctx.done().recv()


def _listen(server: grpc.Server, address: str) -> None:
    try:
        server.add_insecure_port(address)
        apisgrpc.start(server)
    except RuntimeError as err:
        raise OSError(str(err)) from err
