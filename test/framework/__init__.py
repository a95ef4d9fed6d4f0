"""Define what the test suites share: real processes to drive, clients to inspect them with, and ways to wait.

The tests of other programs use the API server and the hollow node, too. For them hack/dist-testing builds a separate
distribution, which contains this package under another name:

    with testing.Cluster(directory) as cluster, testing.HollowNode(cluster, "node-1"):
        ...                       # any client of Kubernetes, with cluster.admin_kubeconfig
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kubelet.cri.remote.fake.processes import Process

    from .apiserver import APIServer
    from .apiserver.cluster import Cluster, Options
    from .apiserver.errors import ApiError
    from .hollow_images import ImageFault, UnusedFaultError
    from .hollow_node import HollowNode
    from .hollow_pod import HollowPod
    from .pytest_plugin import WaitFor

__all__ = [
    "APIServer",
    "ApiError",
    "Cluster",
    "HollowNode",
    "HollowPod",
    "ImageFault",
    "Options",
    "Process",
    "UnusedFaultError",
    "WaitFor",
]

_MODULES = {
    "APIServer": ".apiserver",
    "ApiError": ".apiserver.errors",
    "Cluster": ".apiserver.cluster",
    "HollowNode": ".hollow_node",
    "HollowPod": ".hollow_pod",
    "ImageFault": ".hollow_images",
    "Options": ".apiserver.cluster",
    "Process": ".hollow_pod",
    "UnusedFaultError": ".hollow_images",
    "WaitFor": ".pytest_plugin",
}


def __getattr__(name: str) -> Any:
    """Import a module on first use, so that a program that needs only the API server does not wait for the kubelet."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
