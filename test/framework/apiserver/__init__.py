"""Run a Kubernetes API server for tests, in the tests' process.

It is a real HTTP(S) server that keeps its objects in memory. It has generic storage for the kinds that a kubelet uses,
with the resource versions, conflicts, selectors, paging, watches, patches, defaults, validation and graceful deletion
of a real server. kubectl and client libraries work with it. It has no server-side apply, no schemas, no managed fields,
and no other kinds.

    from framework.apiserver import APIServer

    with APIServer() as api:
        api.kubeconfig("/tmp/kubeconfig")             # for kubectl and clients; api.url is where it listens
        api.store.create("nodes", {"metadata": {"name": "n1"}})
        api.store.create("pods", {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox"}]},
        })
        watch = api.store.watch("pods", "default")
        ...                                           # run what is to be tested
        for event in watch:                           # ends with watch.stop(), from any thread
            if event.object["status"]["phase"] == "Running":
                break
        api.store.delete("pods", "web", "default")    # graceful: it waits for the kubelet
        api.cut_connections()                         # clients have to connect again
        api.compact()                                 # and list again

The reading order is interfaces.py (which part decides what), server.py, handlers.py (requests), registry.py (what
writes mean), storage.py and watch.py. resources.py, strategies.py and pods.py contain the rules of each kind.
"""

from .errors import ApiError
from .interfaces import Cut, Request, UserInfo, WatchEvent
from .server import APIServer, LocalStore

__all__ = ["APIServer", "ApiError", "Cut", "LocalStore", "Request", "UserInfo", "WatchEvent"]
