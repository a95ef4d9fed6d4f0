"""Reconcile the registered plugins with the desired state.

Go: pkg/kubelet/pluginmanager/reconciler/reconciler.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kubelet.pluginmanager import cache, operationexecutor
from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain
from pkg.util import goroutinemap
from pkg.util.goroutinemap import exponentialbackoff


class Reconciler:
    """Start operations without waiting for them. One thread calls `run`."""

    def __init__(
        self,
        operation_executor: operationexecutor.OperationExecutor,
        loop_sleep_duration: float,
        desired_state_of_world: cache.DesiredStateOfWorld,
        actual_state_of_world: cache.ActualStateOfWorld,
    ) -> None:
        """Create a reconciler that waits `loop_sleep_duration` seconds before it tries again."""
        self._operation_executor = operation_executor
        self._loop_sleep_duration = loop_sleep_duration
        self._desired_state_of_world = desired_state_of_world
        self._actual_state_of_world = actual_state_of_world
        self._lock = threading.Lock()  # The lock guards _handlers.
        self._handlers: dict[str, cache.PluginHandler] = {}
        self._handlers_changed: golang.Channel[None] = golang.Channel(1)
        # The keys are the paths of the sockets whose registration was tried, the values their uuids.
        self._tried: dict[str, str] = {}

    def run(self, ctx: golang.Context) -> None:
        """Reconcile until ctx ends.

        A pass starts when a socket appears or disappears, an operation ends, or a handler is added, and each second
        while work remains. Go starts a pass each second.
        """
        while ctx.err() is None:
            left = True
            with contain("Failed to reconcile plugins", ctx):
                left = self.reconcile(ctx)
            timeout = self._loop_sleep_duration if left else None
            golang.select(
                self._desired_state_of_world.changed(),
                self._operation_executor.completed(),
                self._handlers_changed,
                ctx.done(),
                timeout=timeout,
            )

    def add_handler(self, plugin_type: str, plugin_handler: cache.PluginHandler) -> None:
        """Register further plugins of the type with the handler. Any thread may call this function."""
        with self._lock:
            self._handlers[plugin_type] = plugin_handler
        self._handlers_changed.try_send(None)

    def _get_handlers(self) -> dict[str, cache.PluginHandler]:
        with self._lock:
            return dict(self._handlers)

    def reconcile(self, ctx: golang.Context) -> bool:
        """Run a pass, deregistrations first, and report whether work remains for another pass."""
        unregistering = self._unregister(ctx)
        return self._register(ctx) or unregistering

    def _unregister(self, ctx: golang.Context) -> bool:
        wanted = {plugin.socket_path: plugin.uuid for plugin in self._desired_state_of_world.get_plugins_to_register()}
        pending = False
        for plugin in self._actual_state_of_world.get_registered_plugins():
            # Keep this plugin unless its socket is gone or was replaced.
            if wanted.get(plugin.socket_path) == plugin.uuid:
                continue
            pending = True
            klog.v(5).info_s("Starting operationExecutor.UnregisterPlugin", plugin=plugin)

            def start(plugin: cache.PluginInfo = plugin) -> None:
                self._operation_executor.unregister_plugin(ctx, plugin, self._actual_state_of_world)

            if _start(plugin, start):
                klog.v(1).info_s("OperationExecutor.UnregisterPlugin started", plugin=plugin)
        return pending

    def _register(self, ctx: golang.Context) -> bool:
        pending = False
        wanted = self._desired_state_of_world.get_plugins_to_register()
        self._forget_gone_sockets({plugin.socket_path for plugin in wanted})
        registered = {plugin.socket_path for plugin in self._actual_state_of_world.get_registered_plugins()}
        for plugin in wanted:
            if self._actual_state_of_world.plugin_exists_with_correct_uuid(plugin):
                continue
            pending = True
            if plugin.socket_path in registered:
                # The earlier plugin at this path must be deregistered first; its deregistration may have failed for
                # lack of a thread. Otherwise the new plugin would replace its record, and the earlier one would never
                # be deregistered.
                continue
            self._forget_failure_of_another(plugin)
            klog.v(5).info_s("Starting operationExecutor.RegisterPlugin", plugin=plugin)

            def start(plugin: cache.PluginInfo = plugin) -> None:
                self._operation_executor.register_plugin(
                    ctx, plugin.socket_path, plugin.uuid, self._get_handlers(), self._actual_state_of_world
                )

            if _start(plugin, start):
                self._tried[plugin.socket_path] = plugin.uuid
                klog.v(1).info_s("OperationExecutor.RegisterPlugin started", plugin=plugin)
        return pending

    def _forget_gone_sockets(self, wanted: set[str]) -> None:
        """Forget the failures of removed sockets, because sockets may get a new name each time."""
        for path in self._tried.keys() - wanted:
            # The end of that operation starts another pass.
            if not self._operation_executor.is_operation_pending(path):
                del self._tried[path]
                self._operation_executor.forget_failure(path)

    def _forget_failure_of_another(self, plugin: cache.PluginInfo) -> None:
        """Forget the failure of an earlier plugin at the same path.

        DIVERGES (safer): a restarted plugin does not wait for the backoff of its earlier instance.
        Go: pkg/kubelet/pluginmanager/reconciler/reconciler.go, (*reconciler).reconcile: the plugin waits for up to two
        minutes.
        Why: an operator who has repaired and restarted a plugin expects to see whether it registers.
        Test: kubelet/pluginmanager/plugin_manager_test.py:test_plugin_that_is_started_anew_need_not_wait
        """
        if self._tried.get(plugin.socket_path) != plugin.uuid:
            self._operation_executor.forget_failure(plugin.socket_path)


def _start(plugin: cache.PluginInfo, operation: Callable[[], None]) -> bool:
    """Start the operation, and report whether that succeeded.

    No operation starts while another one for the socket runs or during the backoff after a failure.
    """
    try:
        operation()
    except (goroutinemap.AlreadyExistsError, exponentialbackoff.ExponentialBackoffError):
        return False
    except Exception as err:
        # The error may be that no thread is free. Continue with the other plugins; the next pass tries again.
        klog.error_s(err, "Failed to start an operation for a plugin", plugin=plugin)
        return False
    return True
