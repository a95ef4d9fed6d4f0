"""Create the functions that register and deregister a plugin.

Go: pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from kubelet.apis.pluginregistration.v1 import api_pb2 as registerapi
from kubelet.apis.pluginregistration.v1 import api_pb2_grpc
from kubelet.pluginmanager import cache
from pkg import golang, klog
from pkg.util import grpcconn, grpcstatus

if TYPE_CHECKING:
    from kubelet.pluginmanager.operationexecutor.operation_executor import ActualStateOfWorldUpdater

# These timeouts are in seconds.
DIAL_TIMEOUT_DURATION = 10.0
NOTIFY_TIMEOUT_DURATION = 5.0
GET_INFO_TIMEOUT_DURATION = 1.0

_GET_INFO = "/pluginregistration.Registration/GetInfo"


class PluginError(Exception):
    """Signal that an operation on a plugin failed."""


class RegisterPluginError(PluginError):
    """Signal that a plugin could not be registered."""

    def __init__(self, what: str) -> None:
        super().__init__(f"RegisterPlugin error -- {what}")


class OperationGenerator:
    """Create the functions of operations; a function raises an error if its operation fails."""

    def generate_register_plugin_func(
        self,
        ctx: golang.Context,
        socket_path: str,
        uuid: str,
        plugin_handlers: Mapping[str, cache.PluginHandler],
        actual_state_of_world_updater: ActualStateOfWorldUpdater,
    ) -> Callable[[], None]:
        """Return a function that asks the plugin for its type and registers it with the handler of the type."""

        def register_plugin_func() -> None:
            with _dial(socket_path) as channel:
                client = api_pb2_grpc.RegistrationStub(channel)
                info = _get_info(ctx, channel, socket_path)
                handler = plugin_handlers.get(info.type)
                if handler is None:
                    what = f"no handler registered for plugin type: {info.type} at socket {socket_path}"
                    raise _refusal(client, socket_path, what)
                plugin = cache.PluginInfo(
                    socket_path=socket_path,
                    uuid=uuid,
                    handler=handler,
                    name=info.name,
                    endpoint=info.endpoint or socket_path,
                )
                _validate(client, plugin, handler, list(info.supported_versions))
                _register(client, plugin, handler, list(info.supported_versions), actual_state_of_world_updater)

        return register_plugin_func

    def generate_unregister_plugin_func(
        self,
        ctx: golang.Context,
        plugin_info: cache.PluginInfo,
        actual_state_of_world_updater: ActualStateOfWorldUpdater,
    ) -> Callable[[], None]:
        """Return a function that deregisters the plugin."""

        def unregister_plugin_func() -> None:
            handler = plugin_info.handler
            if handler is None:
                raise PluginError(
                    f"UnregisterPlugin error -- failed to get plugin handler for {plugin_info.socket_path}"
                )
            # Remove the plugin from the cache first, so that a socket that returns while the handler runs is registered
            # again.
            actual_state_of_world_updater.remove_plugin(plugin_info.socket_path)
            handler.deregister_plugin(plugin_info.name, plugin_info.endpoint)
            klog.v(4).info_s("DeRegisterPlugin called", pluginName=plugin_info.name, pluginHandler=handler)

        return unregister_plugin_func


def _validate(
    client: api_pb2_grpc.RegistrationStub,
    plugin: cache.PluginInfo,
    handler: cache.PluginHandler,
    versions: list[str],
) -> None:
    try:
        handler.validate_plugin(plugin.name, plugin.endpoint, versions)
    except Exception as err:
        # Tell the plugin about any error of the handler.
        raise _refusal(client, plugin.socket_path, f"plugin validation failed with err: {err}") from err


def _refusal(client: api_pb2_grpc.RegistrationStub, socket_path: str, what: str) -> RegisterPluginError:
    """Report an error to the plugin, and return it for the caller to raise.

    The caller must not keep the error in a variable: the error and the plugin's messages would stay in memory until the
    next garbage collection.
    """
    err = RegisterPluginError(what)
    try:
        _notify_plugin(client, False, str(err))
    except grpc.RpcError as failure:
        raise RegisterPluginError(
            f"failed to send error at socket {socket_path}, err: {err}: {_text(failure)}"
        ) from failure
    return err


def _get_info(ctx: golang.Context, channel: grpc.Channel, socket_path: str) -> registerapi.PluginInfo:
    """Ask the plugin for its type and name; wait if the plugin does not listen yet.

    DIVERGES (safer): a plugin gets eleven seconds in all to listen and to answer.
    Go: pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go,
    (*operationGenerator).GenerateRegisterPluginFunc: the plugin gets ten seconds to listen and one to answer.
    Why: a plugin that has just started on a busy machine may need more than a second to answer.
    Test: kubelet/pluginmanager/plugin_manager_test.py:test_plugin_that_answers_late_has_the_time_left_of_connecting
    """
    timeout = DIAL_TIMEOUT_DURATION + GET_INFO_TIMEOUT_DURATION
    method: grpc.UnaryStreamMultiCallable[Any, bytes] = channel.unary_stream(
        _GET_INFO, registerapi.InfoRequest.SerializeToString
    )
    try:
        with grpcconn.started(ctx, method, registerapi.InfoRequest(), timeout, wait_for_ready=True) as call:
            return registerapi.PluginInfo.FromString(grpcconn.response(call))
    except (grpc.RpcError, DecodeError, EOFError) as err:
        grpcstatus.leave_frames(err)
        reason = ctx.err() or (_text(err) if isinstance(err, grpc.RpcError) else err)
        raise RegisterPluginError(
            f"failed to get plugin info using RPC GetInfo at socket {socket_path}, err: {reason}"
        ) from err


def _register(
    client: api_pb2_grpc.RegistrationStub,
    plugin: cache.PluginInfo,
    handler: cache.PluginHandler,
    versions: list[str],
    actual_state_of_world_updater: ActualStateOfWorldUpdater,
) -> None:
    # Add the plugin to the cache first, so that a socket that disappears while the handler runs is deregistered.
    actual_state_of_world_updater.add_plugin(plugin)
    try:
        handler.register_plugin(plugin.name, plugin.endpoint, versions, None)
    except Exception as err:
        # Tell the plugin about any error. A plugin that failed to register must not stay in the cache.
        actual_state_of_world_updater.remove_plugin(plugin.socket_path)
        what = f"plugin registration failed with err: {err}"
        told = str(RegisterPluginError(what))
        try:
            _notify_plugin(client, False, told)
        except grpc.RpcError as failure:
            raise PluginError(f"{told}: {_text(failure)}") from failure
        raise RegisterPluginError(what) from err
    try:
        _notify_plugin(client, True, "")
    except grpc.RpcError as err:
        actual_state_of_world_updater.remove_plugin(plugin.socket_path)
        handler.deregister_plugin(plugin.name, plugin.endpoint)
        raise RegisterPluginError(
            f"failed to send registration status at socket {plugin.socket_path}, err: {_text(err)}"
        ) from err


def _notify_plugin(client: api_pb2_grpc.RegistrationStub, registered: bool, err_str: str) -> None:
    """Send the result of the registration to the plugin. Raise grpc.RpcError."""
    status = registerapi.RegistrationStatus(plugin_registered=registered, error=err_str)
    client.NotifyRegistrationStatus(status, timeout=NOTIFY_TIMEOUT_DURATION)


def _dial(unix_socket_path: str) -> grpc.Channel:
    # Use no proxy from the environment, and no connection to an earlier socket at the same path.
    options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1), grpcconn.READ_BY_CALLER]
    return grpc.insecure_channel(f"unix:{unix_socket_path}", options=options)


def _text(err: grpc.RpcError) -> str:
    assert isinstance(err, grpc.Call)
    return f"{err.code().name}: {err.details()}"
