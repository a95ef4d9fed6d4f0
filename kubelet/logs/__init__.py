"""Limit the size of container logs: rotate them, compress the old files and limit their number.

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
