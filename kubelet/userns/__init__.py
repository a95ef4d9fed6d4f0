"""Allocate to each pod with `hostUsers: false` a range of the node's user and group IDs that no other pod has.

Go: pkg/kubelet/userns
"""

from kubelet.userns.types import UserNsPodsManager
from kubelet.userns.userns_manager import UsernsManager

__all__ = ["UserNsPodsManager", "UsernsManager"]
