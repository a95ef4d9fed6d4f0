"""Report, as events of the node, that the kernel killed a process because the machine was out of memory.

Go: pkg/kubelet/oom
"""

from kubelet.oom.oom_watcher import SYSTEM_OOM_EVENT, OomWatcher
from kubelet.oom.types import Watcher

__all__ = ["SYSTEM_OOM_EVENT", "OomWatcher", "Watcher"]
