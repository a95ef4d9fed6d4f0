"""What the scheduler's filters look at.

Go: pkg/scheduler/framework
"""

from pkg.scheduler.framework.types import HostPortInfo, NodeInfo, Resource

__all__ = ["HostPortInfo", "NodeInfo", "Resource"]
