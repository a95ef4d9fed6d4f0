"""Start operations, unless one for the same socket runs or has just failed.

Go: pkg/kubelet/pluginmanager/operationexecutor/operation_executor.go
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from kubelet.pluginmanager import cache
from pkg import golang
from pkg.util import goroutinemap

if TYPE_CHECKING:
    from kubelet.pluginmanager.operationexecutor.operation_generator import OperationGenerator
    from pkg.apimachinery import clock as clock_


class ActualStateOfWorldUpdater(Protocol):
    """Define what operations update after a success."""

    def add_plugin(self, plugin_info: cache.PluginInfo) -> None: ...

    def remove_plugin(self, socket_path: str) -> None: ...


class OperationExecutor:
    """Start the operations of plugins. All methods are thread-safe."""

    def __init__(self, operation_generator: OperationGenerator, clock: clock_.Clock | None = None) -> None:
        self._operation_generator = operation_generator
        self._completed: golang.Channel[None] = golang.Channel(1)
        self._pending_operations = goroutinemap.GoRoutineMap(True, clock, lambda: self._completed.try_send(None))

    def completed(self) -> golang.Channel[None]:
        """Return a channel that has an item if an operation has ended since the last receive."""
        return self._completed

    def is_operation_pending(self, socket_path: str) -> bool:
        """Report whether an operation for the socket runs."""
        return self._pending_operations.is_operation_pending(socket_path)

    def forget_failure(self, socket_path: str) -> None:
        """Forget the socket's failure, so that its next operation need not wait for the backoff."""
        self._pending_operations.forget_failure(socket_path)

    def register_plugin(
        self,
        ctx: golang.Context,
        socket_path: str,
        uuid: str,
        plugin_handlers: Mapping[str, cache.PluginHandler],
        actual_state_of_world: ActualStateOfWorldUpdater,
    ) -> None:
        """Start to register the plugin with the handler of its type.

        Raise goroutinemap.AlreadyExistsError while another operation for the socket runs, and
        exponentialbackoff.ExponentialBackoffError during the backoff after a failure.
        """
        operation = self._operation_generator.generate_register_plugin_func(
            ctx, socket_path, uuid, plugin_handlers, actual_state_of_world
        )
        self._pending_operations.run(socket_path, operation)

    def unregister_plugin(
        self, ctx: golang.Context, plugin_info: cache.PluginInfo, actual_state_of_world: ActualStateOfWorldUpdater
    ) -> None:
        """Start to deregister the plugin. Raise the same errors as register_plugin."""
        operation = self._operation_generator.generate_unregister_plugin_func(ctx, plugin_info, actual_state_of_world)
        self._pending_operations.run(plugin_info.socket_path, operation)
