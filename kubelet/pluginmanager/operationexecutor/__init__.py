"""Registering and deregistering, each on a thread of its own and for one socket one at a time.

Go: pkg/kubelet/pluginmanager/operationexecutor
"""

from kubelet.pluginmanager.operationexecutor.operation_executor import ActualStateOfWorldUpdater, OperationExecutor
from kubelet.pluginmanager.operationexecutor.operation_generator import OperationGenerator

__all__ = ["ActualStateOfWorldUpdater", "OperationExecutor", "OperationGenerator"]
