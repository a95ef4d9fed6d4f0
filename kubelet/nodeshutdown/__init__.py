"""Terminate pods in time when the system shuts down, critical pods last.

Go: pkg/kubelet/nodeshutdown
"""

from kubelet.nodeshutdown.nodeshutdown_manager import (
    NODE_SHUTDOWN_NOT_ADMITTED_REASON,
    Config,
    DBusInhibiter,
    Manager,
    ManagerImpl,
    ManagerStub,
    NodeShuttingDownError,
    new_manager,
)

__all__ = [
    "NODE_SHUTDOWN_NOT_ADMITTED_REASON",
    "Config",
    "DBusInhibiter",
    "Manager",
    "ManagerImpl",
    "ManagerStub",
    "NodeShuttingDownError",
    "new_manager",
]
