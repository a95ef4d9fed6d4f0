"""Starts operations, unless one for the same socket runs or has just failed.

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
    """What operations change when they have succeeded."""

    def add_plugin(self, plugin_info: cache.PluginInfo) -> None: ...

    def remove_plugin(self, socket_path: str) -> None: ...


class OperationExecutor:
    """Safe from any thread."""

    def __init__(self, operation_generator: OperationGenerator, clock: clock_.Clock | None = None) -> None:
        self._operation_generator = operation_generator
        self._completed: golang.Channel[None] = golang.Channel(1)
        self._pending_operations = goroutinemap.GoRoutineMap(True, clock, lambda: self._completed.try_send(None))

    def completed(self) -> golang.Channel[None]:
        """Has something to receive when operations have ended since the last receive."""
        return self._completed

    def is_operation_pending(self, socket_path: str) -> bool:
        """Whether an operation for the socket is running."""
        return self._pending_operations.is_operation_pending(socket_path)

    def forget_failure(self, socket_path: str) -> None:
        """What failed with the socket may be started again at once."""
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

        Raises goroutinemap.AlreadyExistsError while another operation runs for the socket, and
        exponentialbackoff.ExponentialBackoffError when it is too early after a failure.
        """
        operation = self._operation_generator.generate_register_plugin_func(
            ctx, socket_path, uuid, plugin_handlers, actual_state_of_world
        )
        self._pending_operations.run(socket_path, operation)

    def unregister_plugin(
        self, ctx: golang.Context, plugin_info: cache.PluginInfo, actual_state_of_world: ActualStateOfWorldUpdater
    ) -> None:
        """Start to take the plugin from its handler. Raises as register_plugin."""
        operation = self._operation_generator.generate_unregister_plugin_func(ctx, plugin_info, actual_state_of_world)
        self._pending_operations.run(plugin_info.socket_path, operation)
