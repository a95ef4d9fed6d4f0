"""What the kubelet sees of plugins' registration.

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

# Seconds after which a socket whose registration has failed, or waits for another, is looked at again. Go does
# that for all sockets all the time.
LOOP_SLEEP_DURATION = 1.0


class PluginManager:
    """Registers what plugins put sockets below `sock_dir`."""

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
        """Register and deregister plugins as their sockets come and go, until ctx ends."""
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
        """Whether the sockets are watched, which is tried until ctx ends.

        DIVERGES (safer): if plugins' sockets cannot be watched at the start, that is tried again every ten seconds.
        Go: pkg/kubelet/pluginmanager/plugin_manager.go, (*pluginManager).Run: tries once.
        Why: if a pod of root has all of root's inotify instances for a while, no plugin would ever register.
        Test: plugin_manager_test.py:test_sockets_are_watched_once_that_is_possible
        """
        while ctx.err() is None:
            try:
                self._desired_state_of_world_populator.start(ctx)
            except Exception as err:
                # Whatever it is, a directory or a lack of inotify watches: no plugin can register until it works.
                klog.error_s(err, "The desired_state_of_world populator (plugin watcher) starts failed!")
                ctx.wait(plugin_watcher.WATCH_RETRY_PERIOD)
            else:
                return True
        return False

    def add_handler(self, plugin_type: str, plugin_handler: cache.PluginHandler) -> None:
        """Have plugins of the type brought to the handler. Safe from any thread."""
        self._reconciler.add_handler(plugin_type, plugin_handler)
