"""Check whether a node is the one that the pod names.

Go: pkg/scheduler/framework/plugins/nodename/node_name.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.scheduler import framework

NAME = "NodeName"
ERR_REASON = "node(s) didn't match the requested node name"


def fits(pod: v1.Pod, node_info: framework.NodeInfo) -> bool:
    """Report whether the pod names this node or none."""
    node = node_info.node
    return not pod.spec.node_name or (node is not None and pod.spec.node_name == node.metadata.name)
