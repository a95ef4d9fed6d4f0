"""What the test suites share: real processes to drive, clients to look at them with, ways to wait.

The API server and the hollow node serve tests of other programs, too, which find them in an installation:

    import kubelet_testing as testing

    with testing.Cluster(directory) as cluster, testing.HollowNode(cluster, "node-1"):
        ...                       # any client of Kubernetes, with cluster.admin_kubeconfig
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .apiserver import APIServer
    from .apiserver.cluster import Cluster, Options
    from .hollow_node import HollowNode

__all__ = ["APIServer", "Cluster", "HollowNode", "Options"]

_MODULES = {
    "APIServer": ".apiserver",
    "Cluster": ".apiserver.cluster",
    "Options": ".apiserver.cluster",
    "HollowNode": ".hollow_node",
}


def __getattr__(name: str) -> Any:
    """Import on first use: who needs the server alone must not wait for the kubelet."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name], __name__), name)
