"""Register the plugins of drivers, and delete the slices of drivers that are gone.

Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import grpc

from kubelet.cm.dra.plugin import dra_plugin, types
from pkg import features, golang, klog
from pkg.api.core import v1
from pkg.api.resource import v1 as resourceapi
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.apimachinery.util import wait
from pkg.apimachinery.util.runtime import contain
from pkg.util import grpcconn, grpcstatus

if TYPE_CHECKING:
    from pkg.client_go import kubernetes

# MAX_PLUGINS is the maximum number of plugins, of all drivers together.
# DIVERGES (safer): beyond MAX_PLUGINS, a plugin can register only in place of an older plugin that is not connected and
# has a successor.
# Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, (*DRAPluginManager).add: there is no limit.
# Why: each plugin takes two threads and a connection, and may register under another name each time.
# Test: dra_plugin_manager_test.py:test_more_plugins_than_there_can_be,
# dra_plugin_manager_test.py:test_plugins_that_left_their_sockets_make_room
MAX_PLUGINS = 200
# HEALTH_STREAM_RETRY_PERIOD is the time, in seconds, after which a health stream that ended is opened again.
HEALTH_STREAM_RETRY_PERIOD = 5.0
# WIPE_RETRY_DURATION is the initial backoff, in seconds, for the deletion of slices.
WIPE_RETRY_DURATION = 1.0


class MonitoredPlugin(dra_plugin.DRAPlugin):
    """Track whether a plugin is connected. The manager's lock guards `connected`."""

    def __init__(
        self, ctx: golang.Context, driver_name: str, endpoint: str, chosen_service: str, client_call_timeout: float
    ) -> None:
        super().__init__(driver_name, endpoint, chosen_service, client_call_timeout)
        # This context ends when the plugin is deregistered or the manager stops, and ends the plugin's background
        # threads.
        self.ctx, self._cancel = golang.with_cancel(ctx)
        golang.after_func(self.ctx, super().close)
        self.connected = False

    def close(self) -> None:
        self._cancel()


class DRAPluginManager:
    """Register the plugins of drivers for the plugin manager. All methods are thread-safe.

    If no plugin of a driver has been connected for `wiping_delay` seconds, the manager deletes the driver's resource
    slices, so that the scheduler places no pod that needs devices which no driver can prepare. All threads end with
    `ctx`.
    """

    def __init__(
        self,
        ctx: golang.Context,
        kube_client: kubernetes.Interface | None,
        get_node: Callable[[golang.Context], v1.Node],
        stream_handler: types.StreamHandler | None,
        wiping_delay: float,
        registered: Callable[[str], None] = lambda driver_name: None,
    ) -> None:
        """Start the manager, which calls `registered` with a driver's name after each registration of a plugin."""
        self._background_ctx, self._cancel = golang.with_cancel(ctx)
        self._kube_client = kube_client
        self._get_node = get_node
        self._stream_handler = stream_handler
        self._wiping_delay = wiping_delay
        self._registered = registered
        self._mutex = threading.Lock()  # This lock guards the fields below, and MonitoredPlugin.connected.
        # `_store` maps drivers to their plugins, in the order of registration.
        self._store: dict[str, list[MonitoredPlugin]] = {}
        # `_pending_wipes` maps drivers to functions that cancel the deletion of their slices.
        self._pending_wipes: dict[str, Callable[[], None]] = {}
        # `_unplanned_wipes` holds the drivers whose deletion could not start for lack of a thread.
        self._unplanned_wipes: set[str] = set()
        self._threads: list[golang.Thread] = []
        # No driver has registered yet, and perhaps none will. Delete the slices of all drivers, so that no pod is
        # scheduled to this node and then has to wait for its driver.
        if kube_client is not None:
            self._go(self._wipe_resource_slices, self._background_ctx, "", name="dra-wipe-slices")

    def stop(self) -> None:
        """End the background threads, and wait until they have ended."""
        self._cancel()
        with self._mutex:
            threads = list(self._threads)
        for thread in threads:
            thread.join()

    def get_plugin(self, driver_name: str) -> dra_plugin.DRAPlugin:
        """Return the driver's plugin to call. Raise LookupError, which names the driver."""
        if not driver_name:
            raise LookupError("DRA driver name is empty")
        plugin = self._get(driver_name)
        if plugin is None:
            raise LookupError(f"DRA driver {driver_name} is not registered")
        return plugin

    def _get(self, driver_name: str) -> dra_plugin.DRAPlugin | None:
        """Return the plugin that registered last, of the connected plugins if there are any.

        That plugin is most likely the newest.
        """
        with self._mutex:
            plugins = self._store.get(driver_name, [])
            if not plugins:
                klog.v(5).info_s("No plugin registered", driverName=driver_name)
                return None
            plugin = next((plugin for plugin in reversed(plugins) if plugin.connected), plugins[-1])
            klog.v(5).info_s(
                "Picked a plugin", driverName=driver_name, endpoint=plugin.endpoint, connected=plugin.connected
            )
            return plugin

    # ---- Calls from the plugin manager ----

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise ValueError for a plugin without a service that the kubelet knows."""
        self._chosen_service(plugin_name, endpoint, versions)

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        """Register a plugin.

        Raise ValueError, also if the driver already has a plugin at the endpoint, or golang.ThreadError.
        """
        chosen_service = self._chosen_service(plugin_name, endpoint, versions)
        timeout = dra_plugin.DEFAULT_CLIENT_CALL_TIMEOUT if plugin_client_timeout is None else plugin_client_timeout
        self._make_room()
        try:
            self._add(plugin_name, endpoint, chosen_service, timeout)
        except golang.ThreadError:
            self._remove(plugin_name, endpoint)
            raise
        self._registered(plugin_name)

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        self._remove(plugin_name, endpoint)

    def _make_room(self) -> None:
        """Remove a plugin that has a successor and is not connected, if the number of plugins is the maximum.

        A driver that is killed leaves its registration socket behind, and its successor may use another.
        """
        with self._mutex:
            replaced = (plugin for plugins in self._store.values() for plugin in plugins[:-1] if not plugin.connected)
            lost = next(replaced, None) if self._count_locked() >= MAX_PLUGINS else None
        if lost is not None:
            self._remove(lost.driver_name, lost.endpoint)

    def _count_locked(self) -> int:
        return sum(map(len, self._store.values()))

    def _add(self, driver_name: str, endpoint: str, chosen_service: str, client_call_timeout: float) -> None:
        with self._mutex:
            if any(plugin.endpoint == endpoint for plugin in self._store.get(driver_name, [])):
                # One plugin must not silently replace another.
                raise ValueError(f"endpoint {endpoint} already registered for DRA driver plugin {driver_name}")
            if self._count_locked() >= MAX_PLUGINS:
                raise ValueError(f"there are {MAX_PLUGINS} DRA plugins, which is the maximum")
            klog.v(4).info_s("Creating new gRPC connection", target=f"unix:{endpoint}")
            plugin = MonitoredPlugin(self._background_ctx, driver_name, endpoint, chosen_service, client_call_timeout)
            plugins = self._store.setdefault(driver_name, [])
            plugins.append(plugin)
            self._go_locked(self._watch_connection, plugin, name=f"dra-conn-{driver_name}")
            if self._stream_handler is not None and features.feature_gate.enabled(features.RESOURCE_HEALTH_STATUS):
                self._go_locked(self._watch_health, plugin, self._stream_handler, name=f"dra-health-{driver_name}")
            klog.v(3).info_s(
                "Registered DRA plugin",
                driverName=driver_name,
                endpoint=endpoint,
                chosenService=chosen_service,
                numPlugins=len(plugins),
            )
            self._sync_locked(driver_name)

    def _remove(self, driver_name: str, endpoint: str) -> None:
        with self._mutex:
            plugins = self._store.get(driver_name, [])
            plugin = next((plugin for plugin in plugins if plugin.endpoint == endpoint), None)
            if plugin is None:
                return
            plugins.remove(plugin)
            if not plugins:
                del self._store[driver_name]
            klog.v(3).info_s(
                "Unregistered DRA plugin", driverName=driver_name, endpoint=endpoint, numPlugins=len(plugins)
            )
            self._sync_locked(driver_name)
        # Close without the lock, because the thread that reports connection changes may be waiting for it.
        plugin.close()

    def _chosen_service(self, driver_name: str, endpoint: str, supported_services: Sequence[str]) -> str:
        """Return the service to call. Raise ValueError if the plugin has no service that the kubelet knows."""
        try:
            return self._validate_supported_services(supported_services)
        except ValueError as err:
            raise ValueError(
                f"invalid supported gRPC versions of DRA driver plugin {driver_name} at endpoint {endpoint}: {err}"
            ) from err

    @staticmethod
    def _validate_supported_services(supported_services: Iterable[str]) -> str:
        """Return the first of the plugin's services that the kubelet knows.

        Raise ValueError if the kubelet knows none of the services.
        """
        services = list(supported_services)
        if not services:
            raise ValueError("empty list of supported gRPC services (aka supported versions)")
        for service in services:
            if service in dra_plugin.SERVICES_SUPPORTED_BY_KUBELET:
                return service
        theirs, ours = _quoted(services), _quoted(dra_plugin.SERVICES_SUPPORTED_BY_KUBELET)
        raise ValueError(f"none of services supported by the plugin ({theirs}) are supported by the kubelet ({ours})")

    # ---- Health ----

    def _watch_health(self, plugin: MonitoredPlugin, handler: types.StreamHandler) -> None:
        """Read the plugin's health stream, and open it again when it ends, until the plugin is deregistered."""
        while self._read_health_stream(plugin, handler) and not plugin.ctx.wait(HEALTH_STREAM_RETRY_PERIOD):
            pass

    def _read_health_stream(self, plugin: MonitoredPlugin, handler: types.StreamHandler) -> bool:
        """Read the stream once, and report whether another attempt makes sense."""
        try:
            with plugin.node_watch_resources(plugin.ctx) as stream:
                handler.handle_watch_resources_stream(plugin.ctx, stream, plugin.driver_name)
        except Exception as err:  # Whatever the plugin sent, only the health of its own devices is unknown.
            if grpcstatus.code(err) is grpc.StatusCode.UNIMPLEMENTED:
                # DIVERGES (fault of Go): the kubelet calls a plugin that does not report the health of devices only
                # once.
                # Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, (*DRAPluginManager).add: it calls the plugin
                # every five seconds.
                # Why: the service is optional, and the log of each node would show an error every five seconds.
                # Test: dra_plugin_manager_test.py:test_plugin_without_health_is_asked_once
                klog.v(3).info_s("DRA plugin does not report its devices' health", driverName=plugin.driver_name)
                return False
            klog.v(3).info_s("WatchResources health stream has ended", driverName=plugin.driver_name, err=err)
        return plugin.ctx.err() is None

    # ---- Slices of drivers that are gone ----

    def _watch_connection(self, plugin: MonitoredPlugin) -> None:
        def handle(connected: bool) -> None:
            with contain("Failed to handle connection of DRA plugin", driverName=plugin.driver_name):
                self._handle_conn(plugin, connected)

        grpcconn.watch(plugin.conn, handle)

    def _handle_conn(self, plugin: MonitoredPlugin, connected: bool) -> None:
        with self._mutex:
            if plugin.ctx.err() is not None or plugin.connected == connected:
                return
            klog.v(2).info_s(
                "Connection changed", driverName=plugin.driver_name, endpoint=plugin.endpoint, connected=connected
            )
            plugin.connected = connected
            self._sync_locked(plugin.driver_name)

    def _sync_locked(self, driver_name: str) -> None:
        """Schedule or cancel the deletion of the driver's slices after a change of its plugins."""
        if self._kube_client is None:
            return
        self._unplanned_wipes.discard(driver_name)
        if any(plugin.connected for plugin in self._store.get(driver_name, [])):
            if (call_off := self._pending_wipes.pop(driver_name, None)) is not None:
                call_off()
            return
        # A deletion that is already scheduled keeps its time.
        if driver_name not in self._pending_wipes and self._background_ctx.err() is None:
            ctx, cancel = golang.with_cancel(self._background_ctx)
            try:
                self._go_locked(self._wipe_later, ctx, driver_name, name=f"dra-wipe-{driver_name}")
            except golang.ThreadError as err:
                klog.error_s(err, "Cannot delete ResourceSlices now, will retry", driverName=driver_name)
                cancel()
                self._unplanned_wipes.add(driver_name)
                return
            # The new thread reads this entry only after it gets the lock that this method's caller holds.
            self._pending_wipes[driver_name] = cancel

    def plan_wipes(self) -> None:
        """Schedule the deletions that could not start for lack of a thread. Call this periodically."""
        with self._mutex:
            for driver_name in list(self._unplanned_wipes):
                self._sync_locked(driver_name)

    def _wipe_later(self, ctx: golang.Context, driver_name: str) -> None:
        if ctx.wait(self._wiping_delay):
            return
        self._wipe_resource_slices(ctx, driver_name)
        with self._mutex:
            if ctx.err() is None:
                self._pending_wipes.pop(driver_name)()

    def _wipe_resource_slices(self, ctx: golang.Context, driver: str) -> None:
        """Delete the driver's slices on this node, or all slices if `driver` is empty.

        Try again until the deletion succeeds or `ctx` ends.
        """
        backoff = wait.Backoff(duration=WIPE_RETRY_DURATION, factor=2.0, jitter=0.2, steps=100, cap=300.0)
        while ctx.err() is None and not self._try_wipe(ctx, driver):
            ctx.wait(backoff.step())

    def _try_wipe(self, ctx: golang.Context, driver: str) -> bool:
        assert self._kube_client is not None
        selector = ""
        try:
            selector = f"{resourceapi.RESOURCE_SLICE_SELECTOR_NODE_NAME}={self._get_node(ctx).metadata.name}"
            if driver:
                selector += f",{resourceapi.RESOURCE_SLICE_SELECTOR_DRIVER}={driver}"
            slices = self._kube_client.resource_v1.resource_slices()
            slices.delete_collection(ctx, list_options=metav1.ListOptions(field_selector=selector))
        except Exception as err:  # Most errors mean an unreachable API server. Nothing else would try again.
            if selector and apierrors.is_not_found(err):
                klog.v(5).info_s("ResourceSlices not found, nothing to delete.", fieldSelector=selector)
                return True
            if ctx.err() is None:
                klog.v(3).info_s("Deleting ResourceSlice failed, retrying", fieldSelector=selector, err=err)
            return False
        klog.v(3).info_s("Deleted ResourceSlices", fieldSelector=selector)
        return True

    # ---- Threads ----

    def threads(self) -> list[str]:
        """List the names of the background threads that run."""
        with self._mutex:
            return [thread.name for thread in self._threads if thread.is_alive()]

    def pending_wipes(self) -> list[str]:
        """List the drivers whose slices are about to be deleted."""
        with self._mutex:
            return list(self._pending_wipes)

    def _go(self, fn: Callable[..., object], *args: object, name: str) -> None:
        with self._mutex:
            self._go_locked(fn, *args, name=name)

    def _go_locked(self, fn: Callable[..., object], *args: object, name: str) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(golang.go(fn, *args, name=name))


def _quoted(names: Iterable[str]) -> str:
    return "[" + " ".join(f'"{name}"' for name in names) + "]"
