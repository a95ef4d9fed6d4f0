"""A Kubernetes API server for tests, in one process with them.

A real HTTP(S) server that keeps its objects in memory: generic storage for the kinds that a kubelet touches, with
resource versions, conflicts, selectors, paging, watches, patches, defaults, validation and graceful deletion as a
real server has them. kubectl and client libraries work against it. What it lacks: server-side apply, schemas,
managed fields, and kinds that nobody asked for.

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

Reading order: interfaces.py (who may decide what), server.py, handlers.py (requests), registry.py (what writes mean),
storage.py and watch.py; resources.py, strategies.py and pods.py say what is special about each kind.
"""

from .errors import ApiError
from .interfaces import Cut, Request, UserInfo, WatchEvent
from .server import APIServer, LocalStore

__all__ = ["APIServer", "ApiError", "Cut", "LocalStore", "Request", "UserInfo", "WatchEvent"]
