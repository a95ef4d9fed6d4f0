"""Tells the node's object when the kernel had to kill a process because the machine had no memory left.

Go: pkg/kubelet/oom
"""

from kubelet.oom.oom_watcher import SYSTEM_OOM_EVENT, OomWatcher
from kubelet.oom.types import Watcher

__all__ = ["SYSTEM_OOM_EVENT", "OomWatcher", "Watcher"]
