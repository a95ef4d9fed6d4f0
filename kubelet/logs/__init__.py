"""Keeps container logs small: rotates them by size, compresses the old ones and limits their number.

Go: pkg/kubelet/logs
"""

from kubelet.logs.container_log_manager import (
    ContainerLogManager,
    ContainerLogManagerImpl,
    LogRotatePolicy,
    get_all_logs,
    new_container_log_manager,
)
from kubelet.logs.container_log_manager_stub import ContainerLogManagerStub

__all__ = [
    "ContainerLogManager",
    "ContainerLogManagerImpl",
    "ContainerLogManagerStub",
    "LogRotatePolicy",
    "get_all_logs",
    "new_container_log_manager",
]
