"""Define the data that the scheduler's filters read.

Go: pkg/scheduler/framework
"""

from pkg.scheduler.framework.types import HostPortInfo, NodeInfo, Resource

__all__ = ["HostPortInfo", "NodeInfo", "Resource"]
