"""Manage the clients of the registered plugins, and register the plugins that the plugin manager finds.

Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kubelet.apis.deviceplugin import v1beta1 as api
from kubelet.cm.devicemanager.plugin.v1beta1.client import PluginClient
from pkg import klog
from pkg.apimachinery import clock as clocklib
from pkg.apis.core.v1 import helper as v1helper

if TYPE_CHECKING:
    from kubelet.cm.devicemanager.plugin.v1beta1.api import ClientHandler


class RegistrationError(Exception):
    """Signal that the kubelet does not accept a plugin, although its request is valid."""


class PluginClients:
    """Implement the server's part that is a cache.PluginHandler. All methods are thread-safe."""

    def __init__(self, chandler: ClientHandler, clock: clocklib.Clock) -> None:
        self._chandler = chandler
        self._clock = clock
        self._clients_lock = threading.Lock()  # This lock guards the fields below.
        self._clients: dict[str, PluginClient] = {}
        self._stopped = False
        # `_connecting` holds the resources for which a plugin is being connected. `_next` maps a resource to the
        # registration that comes next.
        self._connecting: set[str] = set()
        self._next: dict[str, object] = {}
        self._turn_changed = threading.Condition(self._clients_lock)

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        """Raise ValueError for unknown versions, and for a name that is not the name of an extended resource."""
        log = {"plugin": plugin_name, "endpoint": endpoint, "versions": versions}
        klog.v(2).info_s("Got plugin at endpoint with versions", **log)
        if not is_version_compatible_with_plugin(*versions):
            supported = f"[{' '.join(versions)}]"
            raise ValueError(f"manager version, {api.VERSION}, is not among plugin supported versions {supported}")
        if not v1helper.is_extended_resource_name(plugin_name):
            raise ValueError(f"invalid name of device plugin socket: {invalid_resource_name(plugin_name)}")
        klog.v(2).info_s("Device plugin validated", **log)

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        """Connect to the plugin. Raise ConnectionError or ValueError."""
        klog.v(2).info_s("Registering plugin at endpoint", plugin=plugin_name, endpoint=endpoint)
        self.connect_client(plugin_name, endpoint)

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        klog.v(2).info_s("Deregistering plugin", plugin=plugin_name, endpoint=endpoint)
        with self._clients_lock:
            client = self._clients.get(plugin_name)
        # DIVERGES (fault of Go): a plugin whose socket is gone is disconnected only if it still owns the resource.
        # Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go, (*server).DeRegisterPlugin: it disconnects
        # whichever plugin owns the resource by then.
        # Why: a newer plugin that has taken the resource over at another socket would lose it.
        # Test: server_test.py:test_a_plugin_that_is_not_there_any_more_takes_no_other_with_it
        if client is not None and client.socket_path == endpoint:
            self._disconnect_client(client)

    def connect_client(self, name: str, socket_path: str) -> None:
        """Connect to a plugin, which replaces the resource's earlier plugin.

        Raise the errors of register_plugin, RegistrationError if another plugin has registered meanwhile, or
        golang.ThreadError.
        """
        with self._turn(name):
            client = PluginClient(name, socket_path, self._chandler, self._clock)
            try:
                client.connect()
                before = self._put(client)
            except Exception as err:
                client.close()
                klog.error_s(err, "Failed to connect to new client", resource=name)
                raise
            klog.v(2).info_s("Connected to new client", resource=name)
            if before is not None:
                # DIVERGES (fault of Go): the kubelet stops listening to the plugin that owned the resource before.
                # Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go, (*server).connectClient: it listens to
                # both, and disconnects the new one when the old one ends.
                # Why: the node would show the devices of whichever plugin sent its list last.
                # Test: server_test.py:test_another_plugin_of_the_same_resource
                before.close()
                before.join()
            try:
                client.start(self._run_client)
            except Exception:
                self._disconnect_client(client)
                raise

    @contextlib.contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """Keep other plugins of the resource from being connected during the block. The last plugin to register wins.

        While one plugin is being connected, at most one registration of the resource waits. A newer registration
        replaces it: the earlier one raises RegistrationError.

        DIVERGES (safer): plugins of the same resource are connected one after the other.
        Go: pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go, (*server).connectClient: they are connected at the
        same time.
        Why: a plugin that hangs and registers again and again would take another thread each time.
        Test: server_test.py:test_only_one_plugin_waits_for_another_of_its_resource
        """
        me = object()
        with self._turn_changed:
            self._next[name] = me
            self._turn_changed.notify_all()
            self._turn_changed.wait_for(lambda: self._next.get(name) is not me or name not in self._connecting)
            if self._next.get(name) is not me:
                raise RegistrationError(f"another plugin of {name} has registered meanwhile")
            del self._next[name]
            self._connecting.add(name)
        try:
            yield
        finally:
            with self._turn_changed:
                self._connecting.remove(name)
                self._turn_changed.notify_all()

    def _put(self, client: PluginClient) -> PluginClient | None:
        """Store the client and return the one that it replaces. Raise RegistrationError after disconnect_all."""
        with self._clients_lock:
            if self._stopped:
                raise RegistrationError("device plugin registration server is stopped")
            before = self._clients.get(client.resource)
            self._clients[client.resource] = client
            return before

    def _run_client(self, client: PluginClient) -> None:
        client.run()
        with self._clients_lock:
            replaced = self._clients.get(client.resource) is not client
        if not replaced:
            self._disconnect_client(client)

    def _disconnect_client(self, client: PluginClient) -> None:
        with self._clients_lock:
            if self._clients.get(client.resource) is not client:
                return
            del self._clients[client.resource]
        klog.v(2).info_s("Deregistered client", name=client.resource)
        client.disconnect()

    def take_clients(self) -> None:
        """Accept plugins again after disconnect_all."""
        with self._clients_lock:
            self._stopped = False

    def disconnect_all(self) -> None:
        """Disconnect all plugins, and accept no others."""
        with self._clients_lock:
            self._stopped = True
            clients = list(self._clients.values())
        for client in clients:
            self._disconnect_client(client)
            client.join()


def is_version_compatible_with_plugin(*versions: str) -> bool:
    return any(version in api.SUPPORTED_VERSIONS for version in versions)


def invalid_resource_name(name: str) -> str:
    """Return the message about an invalid resource name.

    Go: api.go, errInvalidResourceName
    """
    return f"the ResourceName {klog.quote(name)} is invalid"
