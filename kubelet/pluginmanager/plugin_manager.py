"""Manage the registration of plugins.

Go: pkg/kubelet/pluginmanager/plugin_manager.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubelet.pluginmanager import cache, metrics, operationexecutor, pluginwatcher
from kubelet.pluginmanager.pluginwatcher import plugin_watcher
from kubelet.pluginmanager.reconciler import Reconciler
from pkg import golang, klog

if TYPE_CHECKING:
    from pkg.apimachinery import clock as clock_

# If a registration has failed or must wait, the reconciler tries again after this time, in seconds. Go's reconciler
# checks all sockets at this interval.
LOOP_SLEEP_DURATION = 1.0


class PluginManager:
    """Register the plugins that have sockets below `sock_dir`."""

    def __init__(self, sock_dir: str, clock: clock_.Clock | None = None) -> None:
        self._actual_state_of_world = cache.ActualStateOfWorld()
        self._desired_state_of_world = cache.DesiredStateOfWorld(clock)
        self._reconciler = Reconciler(
            operationexecutor.OperationExecutor(operationexecutor.OperationGenerator(), clock),
            LOOP_SLEEP_DURATION,
            self._desired_state_of_world,
            self._actual_state_of_world,
        )
        self._desired_state_of_world_populator = pluginwatcher.Watcher(sock_dir, self._desired_state_of_world)

    def run(self, ctx: golang.Context) -> None:
        """Register and deregister plugins as their sockets appear and disappear, until ctx ends."""
        if not self._start_watcher(ctx):
            return
        klog.v(2).info_s("The desired_state_of_world populator (plugin watcher) starts")
        klog.info_s("Starting Kubelet Plugin Manager")
        metrics.register(self._actual_state_of_world, self._desired_state_of_world)
        try:
            self._reconciler.run(ctx)
        finally:
            self._desired_state_of_world_populator.wait()
        klog.info_s("Shutting down Kubelet Plugin Manager")

    def _start_watcher(self, ctx: golang.Context) -> bool:
        """Start to watch the sockets; try until that succeeds or ctx ends, and report whether it succeeded.

        DIVERGES (safer): if the kubelet cannot watch the plugins' sockets at the start, it tries again every ten
        seconds.
        Go: pkg/kubelet/pluginmanager/plugin_manager.go, (*pluginManager).Run: the Go kubelet tries once.
        Why: if a root pod temporarily uses all of root's inotify instances, no plugin would ever register.
        Test: plugin_manager_test.py:test_sockets_are_watched_once_that_is_possible
        """
        while ctx.err() is None:
            try:
                self._desired_state_of_world_populator.start(ctx)
            except Exception as err:
                # Try again after any error, whether of the directory or of inotify, because no plugin can register
                # without the watch.
                klog.error_s(err, "The desired_state_of_world populator (plugin watcher) starts failed!")
                ctx.wait(plugin_watcher.WATCH_RETRY_PERIOD)
            else:
                return True
        return False

    def add_handler(self, plugin_type: str, plugin_handler: cache.PluginHandler) -> None:
        """Register plugins of the type with the handler. Any thread may call this function."""
        self._reconciler.add_handler(plugin_type, plugin_handler)
