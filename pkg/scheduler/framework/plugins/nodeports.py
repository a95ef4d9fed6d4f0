"""Check whether the host ports that a pod requests are free.

Go: pkg/scheduler/framework/plugins/nodeports/node_ports.go
"""

from __future__ import annotations

from pkg.api.core import v1
from pkg.scheduler import framework
from pkg.scheduler.framework.types import get_host_ports

NAME = "NodePorts"
ERR_REASON = "node(s) didn't have free ports for the requested pod ports"


def fits(pod: v1.Pod, node_info: framework.NodeInfo) -> bool:
    return not any(
        node_info.used_ports.check_conflict(port.host_ip, port.protocol, port.host_port) for port in get_host_ports(pod)
    )
