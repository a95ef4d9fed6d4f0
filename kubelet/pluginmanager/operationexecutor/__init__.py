"""Register and deregister plugins, each on its own thread, and one at a time for each socket.

Go: pkg/kubelet/pluginmanager/operationexecutor
"""

from kubelet.pluginmanager.operationexecutor.operation_executor import ActualStateOfWorldUpdater, OperationExecutor
from kubelet.pluginmanager.operationexecutor.operation_generator import OperationGenerator

__all__ = ["ActualStateOfWorldUpdater", "OperationExecutor", "OperationGenerator"]
