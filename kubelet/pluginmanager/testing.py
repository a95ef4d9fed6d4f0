"""Provide a plugin that registers, and a handler that records its calls.

Go: pkg/kubelet/pluginmanager/pluginwatcher/example_plugin.go, example_handler.go
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent import futures
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from kubelet.apis.pluginregistration import v1 as registration
from kubelet.apis.pluginregistration.v1 import api_pb2 as registerapi
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc
from kubelet.pluginmanager import cache
from pkg import golang

DEADLINE = 30.0
SUPPORTED_VERSIONS = ("v1beta1", "v1beta2")


class ExamplePlugin(api_pb2_grpc.RegistrationServicer):
    """Register a plugin over a real socket; `statuses` holds the results that it gets."""

    def __init__(
        self,
        plugin_name: str,
        socket_path: Path,
        plugin_type: str = registration.DEVICE_PLUGIN,
        endpoint: str = "",
        fail: Sequence[str] = (),
    ) -> None:
        """Create a plugin; the calls that `fail` names return an error."""
        self.socket_path = socket_path
        self.info = registerapi.PluginInfo(
            type=plugin_type, name=plugin_name, endpoint=endpoint, supported_versions=SUPPORTED_VERSIONS
        )
        self.fail = fail
        self.statuses: golang.Channel[registerapi.RegistrationStatus] = golang.Channel(100)
        self._server: grpc.Server | None = None

    def GetInfo(self, request: registerapi.InfoRequest, context: grpc.ServicerContext) -> registerapi.PluginInfo:
        if "GetInfo" in self.fail:
            context.abort(grpc.StatusCode.INTERNAL, "no info today")
        return self.info

    def NotifyRegistrationStatus(
        self, request: registerapi.RegistrationStatus, context: grpc.ServicerContext
    ) -> registerapi.RegistrationStatusResponse:
        self.statuses.send(request)
        if "NotifyRegistrationStatus" in self.fail:
            context.abort(grpc.StatusCode.INTERNAL, "not interested")
        return registerapi.RegistrationStatusResponse()

    def serve(self) -> None:
        """Create the socket and serve on it."""
        self._server = grpc.server(futures.ThreadPoolExecutor(2, thread_name_prefix="example-plugin"))
        api_pb2_grpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket_path}")
        self._server.start()

    def stop(self) -> None:
        """Stop serving and remove the socket."""
        if self._server is not None:
            self._server.stop(None).wait(DEADLINE)
            self._server = None
            self.socket_path.unlink(missing_ok=True)

    def expect_status(self) -> registerapi.RegistrationStatus:
        """Return the next status that the kubelet sends."""
        status, ok = self.statuses.recv(DEADLINE)
        assert ok and status is not None, "no registration status"
        return status


class FakePluginHandler:
    """Accept every plugin, unless an error is set. `events` has a line for each call."""

    def __init__(self) -> None:
        self.validate_err: Exception | None = None
        self.register_err: Exception | None = None
        self._changed = threading.Condition()  # The condition guards events.
        self.events: list[str] = []

    def validate_plugin(self, plugin_name: str, endpoint: str, versions: Sequence[str]) -> None:
        self._note(f"validate {plugin_name} {endpoint}")
        if self.validate_err is not None:
            raise self.validate_err

    def register_plugin(
        self, plugin_name: str, endpoint: str, versions: Sequence[str], plugin_client_timeout: float | None
    ) -> None:
        self._note(f"register {plugin_name} {endpoint} {' '.join(versions)}")
        if self.register_err is not None:
            raise self.register_err

    def deregister_plugin(self, plugin_name: str, endpoint: str) -> None:
        self._note(f"deregister {plugin_name} {endpoint}")

    def expect(self, *events: str) -> None:
        """Wait until exactly these calls have been made since the last `expect`."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.events) >= len(events), DEADLINE)
            assert self.events == list(events)
            self.events = []

    def _note(self, event: str) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()


if TYPE_CHECKING:
    _HANDLER: cache.PluginHandler = FakePluginHandler()
