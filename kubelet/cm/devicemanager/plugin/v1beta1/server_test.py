"""Test registrations and connections, with plugins on real sockets.

Go: pkg/kubelet/cm/devicemanager/endpoint_test.go, manager_test.go (TestDevicePluginReRegistration)
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.waiting import wait_for

from kubelet import metrics, pluginmanager
from kubelet.apis.deviceplugin.v1beta1 import api_pb2 as pluginapi
from kubelet.apis.deviceplugin.v1beta1 import api_pb2_grpc
from kubelet.apis.grpc import requests
from kubelet.apis.grpc.testing import silent_calls
from kubelet.apis.pluginregistration import v1 as registration
from kubelet.cm.devicemanager import endpoint
from kubelet.cm.devicemanager.plugin import v1beta1 as plugin
from kubelet.cm.devicemanager.plugin.v1beta1 import client as pluginclient
from kubelet.cm.devicemanager.plugin.v1beta1 import server
from kubelet.cm.devicemanager.plugin.v1beta1.stub import Stub
from kubelet.cm.devicemanager.testing import device
from pkg import golang
from pkg.apimachinery import clock as clocklib
from pkg.apimachinery.clock.testing import FakeClock
from pkg.apimachinery.util.runtime.testing import failing_once, failures
from pkg.golang.testing import out_of_threads, out_of_threads_here
from pkg.util import grpcstatus

_RESOURCE = "fake-domain/resource"
_DEADLINE = 30.0


class _Handler:
    """Imitate the device manager; `events` records each call as a line."""

    def __init__(self) -> None:
        self.changed = threading.Condition()  # This lock guards events.
        self.events: list[str] = []
        self.plugin: plugin.DevicePlugin | None = None
        # `patience` is the time, in seconds, that a registering plugin has to respond.
        self.patience = _DEADLINE

    def cleanup_plugin_directory(self, directory: str) -> None:
        self._note("cleanup")

    def plugin_connected(self, resource_name: str, device_plugin: plugin.DevicePlugin) -> None:
        options = plugin.call(device_plugin.api.GetDevicePluginOptions, pluginapi.Empty(), self.patience, resource_name)
        self.plugin = device_plugin
        required = " with pre start" if options.pre_start_required else ""
        self._note(f"connected {Path(device_plugin.socket_path).name}{required}")

    def plugin_disconnected(self, resource_name: str, device_plugin: plugin.DevicePlugin) -> None:
        self._note(f"disconnected {resource_name}")

    def plugin_list_and_watch_receiver(self, resource_name: str, response: pluginapi.ListAndWatchResponse) -> None:
        self._note(f"devices {' '.join(f'{each.ID}:{each.health}' for each in response.devices)}".rstrip())

    def expect(self, *events: str) -> None:
        """Wait until exactly these calls have been made since the last call of `expect`."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.events) >= len(events), _DEADLINE)
            assert self.events == list(events)
            self.events = []

    def _note(self, event: str) -> None:
        with self.changed:
            self.events.append(event)
            self.changed.notify_all()


class _World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.handler = _Handler()
        self.clock = FakeClock()
        self.socket = directory / "kubelet.sock"
        self.server = plugin.Server(str(self.socket), self.handler, self.handler, self.clock)
        self.stubs: list[Stub] = []

    def start(self) -> None:
        self.server.start()
        self.handler.expect("cleanup")

    def stub(self, name: str, *devices: pluginapi.Device, pre_start: bool = False) -> Stub:
        """Return a plugin that serves, and has not registered."""
        stub = Stub(devices, self.directory / name, _RESOURCE, pre_start)
        stub.start()
        self.stubs.append(stub)
        return stub

    def refused(self, stub: Stub, **request: str) -> str:
        with pytest.raises(grpc.RpcError) as refusal:
            stub.register(self.socket, **request)
        assert isinstance(refusal.value, grpc.Call) and refusal.value.code() is grpc.StatusCode.UNKNOWN
        return refusal.value.details() or ""


@pytest.fixture
def world() -> Iterator[_World]:
    # The path of a socket must be short.
    with tempfile.TemporaryDirectory() as directory:
        world = _World(Path(directory))
        yield world
        for stub in world.stubs:
            stub.stop()
        world.server.stop()


def test_devices_from_first_to_last(world: _World) -> None:
    world.start()
    stub = world.stub("p.sock", device("1"), device("2", healthy=False), pre_start=True)
    stub.register(world.socket)
    world.handler.expect("connected p.sock with pre start", "devices 1:Healthy 2:Unhealthy")
    stub.update(device("1", healthy=False), device("3"))
    world.handler.expect("devices 1:Unhealthy 3:Healthy")
    stub.update()
    world.handler.expect("devices")
    stub.stop()
    world.handler.expect(f"disconnected {_RESOURCE}")


def test_another_plugin_of_the_same_resource(world: _World) -> None:
    world.start()
    first, second = world.stub("p1.sock", device("1")), world.stub("p2.sock", device("2"))
    first.register(world.socket)
    world.handler.expect("connected p1.sock", "devices 1:Healthy")
    second.register(world.socket)
    world.handler.expect("connected p2.sock", "devices 2:Healthy")
    first.update(device("9"))
    first.stop()
    second.update(device("3"))
    world.handler.expect("devices 3:Healthy")


def test_plugin_that_registers_twice(world: _World) -> None:
    world.start()
    stub = world.stub("p.sock", device("1"))
    for _ in range(2):
        stub.register(world.socket)
        world.handler.expect("connected p.sock", "devices 1:Healthy")
    stub.stop()
    world.handler.expect(f"disconnected {_RESOURCE}")


def test_plugin_that_is_restarted(world: _World) -> None:
    world.start()
    stub = world.stub("p.sock", device("1"))
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")
    stub.stop()
    world.handler.expect(f"disconnected {_RESOURCE}")
    stub.start()
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")


@pytest.mark.parametrize(
    ("request_", "fault"),
    [
        (
            {"version": "v9"},
            'requested API version "v9" is not supported by kubelet. Supported version is "[v1beta1]"',
        ),
        ({"endpoint": ""}, f"no endpoint was given for resource {_RESOURCE}"),
        ({"resource_name": "gpu"}, 'the ResourceName "gpu" is invalid'),
        ({"resource_name": ""}, 'the ResourceName "" is invalid'),
        ({"resource_name": "kubernetes.io/gpu"}, 'the ResourceName "kubernetes.io/gpu" is invalid'),
        ({"resource_name": "example.com/a b\n"}, 'the ResourceName "example.com/a b\\n" is invalid'),
        ({"resource_name": f"example.com/{'x' * 64}"}, f'the ResourceName "example.com/{"x" * 64}" is invalid'),
    ],
    ids=["version", "no endpoint", "no domain", "empty", "native", "characters", "too long"],
)
def test_garbage_is_refused(request_: dict[str, str], fault: str, world: _World) -> None:
    world.start()
    assert world.refused(world.stub("p.sock"), **request_) == fault
    world.handler.expect()


_TOO_LONG = pluginapi.ListAndWatchResponse(devices=[device("x" * 10_000_000)]).SerializeToString()
# This list contains a device whose ID is not valid UTF-8.
_NO_TEXT = b"\x0a\x03\x0a\x01\xff"


def _plugin_with_lists(world: _World, lists: Callable[[Any, grpc.ServicerContext], Iterator[bytes]]) -> grpc.Server:
    """Start a plugin at p.sock that responds to ListAndWatch with the messages that `lists` yields, as bytes."""
    server = grpc.server(futures.ThreadPoolExecutor(8))
    methods: dict[str, Any] = {
        "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda request, context: b""),
        "ListAndWatch": grpc.unary_stream_rpc_method_handler(lists),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
    server.add_insecure_port(f"unix:{world.directory}/p.sock")
    server.start()
    return server


@pytest.mark.parametrize("garbage", [_TOO_LONG, _NO_TEXT, b"\xff"], ids=["too long", "no text", "no message"])
def test_garbage_instead_of_devices(garbage: bytes, world: _World) -> None:
    """A plugin that sends garbage is disconnected, and can register again."""
    world.start()
    server = _plugin_with_lists(world, lambda request, context: iter([garbage]))
    stub = Stub([device("1")], world.directory / "p.sock", _RESOURCE)
    stub.register(world.socket)
    world.handler.expect("connected p.sock", f"disconnected {_RESOURCE}")
    server.stop(None).wait(_DEADLINE)
    world.stubs.append(stub)
    stub.start()
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")


def test_nothing_is_left_of_plugins_whose_lists_cannot_be_decoded(world: _World) -> None:
    """Nothing remains of plugins that send undecodable lists again and again, and end no call by themselves."""

    def lists(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        gone = threading.Event()
        context.add_callback(gone.set)
        yield _NO_TEXT
        gone.wait(_DEADLINE)

    world.start()
    server = _plugin_with_lists(world, lists)
    stub = Stub([], world.directory / "p.sock", _RESOURCE)
    files = 0
    for turn in range(6):
        stub.register(world.socket)
        world.handler.expect("connected p.sock", f"disconnected {_RESOURCE}")
        if turn == 1:
            files = _files()
    wait_for("no open file is left", lambda: _files() <= files)
    server.stop(None).wait(_DEADLINE)


@failures
def test_devices_that_the_manager_cannot_take_are_taken_again(
    world: _World, err: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = failing_once(world.handler.plugin_list_and_watch_receiver, err)
    monkeypatch.setattr(world.handler, "plugin_list_and_watch_receiver", receive)
    world.start()
    stub = world.stub("p.sock", device("1"))
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")


def test_plugin_that_no_thread_is_left_for(world: _World) -> None:
    world.start()
    stub = world.stub("p.sock", device("1"))
    for thread in ("", "-lists"):
        with out_of_threads(f"device-plugin-{_RESOURCE}{thread}"):
            assert "the limit is TasksMax" in world.refused(stub)
        world.handler.expect("connected p.sock", f"disconnected {_RESOURCE}")
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")


def test_calls_need_no_thread_of_the_library(world: _World) -> None:
    """A call needs no new thread of gRPC's library.

    If gRPC fails to start a thread, the connection never delivers a response again, and cannot be closed.
    """
    answer = pluginapi.AllocateResponse()
    answer.container_responses.add()
    found = _endpoint(world, lambda ids: answer)
    with out_of_threads_here():
        with pytest.raises(golang.ThreadError, match=f"start thread 'device-plugin-{_RESOURCE}-call'"):
            found.allocate(["1"])
        client = pluginclient.PluginClient(_RESOURCE, f"{world.directory}/p.sock", world.handler, world.clock)
        client.connect()
        with pytest.raises(golang.ThreadError, match=f"start thread 'device-plugin-{_RESOURCE}-lists'"):
            client.start(lambda client: None)
        client.close()
    assert found.allocate(["1"]).result(_DEADLINE) == answer


def test_plugins_register_when_the_server_is_started_again(world: _World) -> None:
    """Plugins can register after the server was stopped and started again.

    A restart happens when another module fails to start, and all of them are started again.
    """
    world.start()
    world.server.stop()
    world.start()
    world.stub("p.sock", device("1")).register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")


def test_nothing_is_left_of_plugins_that_come_and_go(world: _World) -> None:
    """No threads or connections remain of plugins, whether they announce their end or not."""
    world.start()
    stub = world.stub("p.sock", device("1"))
    threads, files = 0, 0
    for turn in range(12):
        for _ in range(3):
            stub.register(world.socket)
            world.handler.expect("connected p.sock", "devices 1:Healthy")
        stub.stop()
        world.handler.expect(f"disconnected {_RESOURCE}")
        if turn == 1:
            threads, files = _threads(), _files()
        stub.start()
    stub.stop()
    wait_for("no thread and no open file is left", lambda: _threads() <= threads and _files() <= files)


def _threads() -> int:
    """Count the threads, except those of the plugin and those that serve registrations.

    The number of the latter varies, because they start when they are needed.
    """
    pools = ("device-plugin-stub", "device-plugin-registration")
    return sum(not thread.name.startswith(pools) for thread in threading.enumerate())


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_endpoint_where_nobody_serves(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pluginclient, "_DIAL_TIMEOUT", 0.2)
    world.start()
    stub = world.stub("p.sock")
    stub.stop()
    fault = f"failed to dial device plugin: no server listens at {world.directory}/p.sock"
    assert world.refused(stub) == fault


def test_more_names_than_are_counted(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_COUNTED_NAMES", 2)
    world.start()
    stub = world.stub("p.sock")
    names = [f"counted.example/r{number}" for number in (1, 2, 1, 3)]
    for name in names:
        stub.register(world.socket, resource_name=name)
    families = metrics.DEVICE_PLUGIN_REGISTRATION_COUNT.collect()
    counts = {sample.labels["resource_name"]: sample.value for family in families for sample in family.samples}
    assert {name: counts.get(name) for name in names} == {names[0]: 2, names[1]: None, names[3]: 1}


def test_plugin_that_hangs_when_it_registers(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    world.handler.patience = 0.2
    stub, goes_on = world.stub("p.sock", device("1")), threading.Event()
    monkeypatch.setattr(
        stub, "GetDevicePluginOptions", lambda *_: goes_on.wait(_DEADLINE) and pluginapi.DevicePluginOptions()
    )
    stub.start()
    assert (
        world.refused(stub)
        == f"rpc error: code = DeadlineExceeded desc = the device plugin of {_RESOURCE} has not responded within 0.2 s"
    )
    goes_on.set()


def _hanging(world: _World, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Connect a plugin that hangs. The first event is set when it hangs, and the second one ends that."""
    stub, hangs, goes_on = world.stub("hanging.sock", device("1")), threading.Event(), threading.Event()

    def options(*_: object) -> pluginapi.DevicePluginOptions:
        hangs.set()
        goes_on.wait(_DEADLINE)
        return pluginapi.DevicePluginOptions()

    monkeypatch.setattr(stub, "GetDevicePluginOptions", options)
    stub.start()
    return hangs, goes_on


def _begin(channel: grpc.Channel, resource_name: str) -> Any:
    request = pluginapi.RegisterRequest(version="v1beta1", endpoint="hanging.sock", resource_name=resource_name)
    return api_pb2_grpc.RegistrationStub(channel).Register.future(request, timeout=_DEADLINE)


def test_plugins_that_hang_keep_no_other_from_registering(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    hangs, goes_on = _hanging(world, monkeypatch)
    with grpc.insecure_channel(f"unix:{world.socket}") as channel:
        calls = [_begin(channel, f"hanging.example/r{number}") for number in range(6)]
        assert hangs.wait(_DEADLINE)
        world.stub("p.sock", device("2")).register(world.socket)
        world.handler.expect("connected p.sock", "devices 2:Healthy")
        goes_on.set()
        assert [call.code() for call in calls] == [grpc.StatusCode.OK] * 6


def test_only_one_plugin_waits_for_another_of_its_resource(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.start()
    hangs, goes_on = _hanging(world, monkeypatch)
    with grpc.insecure_channel(f"unix:{world.socket}") as channel:
        first = _begin(channel, _RESOURCE)
        assert hangs.wait(_DEADLINE)
        others = [_begin(channel, _RESOURCE) for _ in range(3)]
        wait_for("two of the plugins that register have an answer", lambda: sum(call.done() for call in others) == 2)
        goes_on.set()
        assert first.code() is grpc.StatusCode.OK
        codes = [call.code() for call in others]
        assert sorted(code.name for code in codes) == ["OK", "UNKNOWN", "UNKNOWN"]
        refused = next(call for call in others if call.code() is grpc.StatusCode.UNKNOWN)
        assert refused.details() == f"another plugin of {_RESOURCE} has registered meanwhile"


def _endpoint(world: _World, alloc: Callable[[Sequence[str]], pluginapi.AllocateResponse]) -> endpoint.EndpointImpl:
    world.start()
    stub = world.stub("p.sock", device("1"))
    stub.alloc_func = lambda request, devices: alloc(request.container_requests[0].devices_ids)
    stub.register(world.socket)
    world.handler.expect("connected p.sock", "devices 1:Healthy")
    return endpoint.EndpointImpl(_RESOURCE, world.handler.plugin, clocklib.RealClock())


def test_plugins_that_send_no_request_keep_no_thread_from_others(
    world: _World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT", 0.01)
    world.start()
    with silent_calls(f"unix:{world.socket}", "/v1beta1.Registration/Register", 5) as calls:
        assert [call.code() for call in calls] == [grpc.StatusCode.CANCELLED] * 5
        world.stub("p.sock", device("d")).register(world.socket)
    world.handler.expect("connected p.sock", "devices d:Healthy")


def test_allocate(world: _World) -> None:
    answer = pluginapi.AllocateResponse()
    answer.container_responses.add(envs={"A": "1"}).devices.add(host_path="/dev/a", container_path="/dev/b")
    assert _endpoint(world, lambda ids: answer).allocate(["2", "1"]).result(_DEADLINE) == answer
    assert world.stubs[0].calls == ["allocate 1 2"]


def test_plugin_that_hangs_in_allocate(world: _World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ALLOCATE_TIMEOUT", 0.2)
    goes_on = threading.Event()

    def hang(ids: Sequence[str]) -> pluginapi.AllocateResponse:
        goes_on.wait(_DEADLINE)
        return pluginapi.AllocateResponse()

    call = _endpoint(world, hang).allocate(["1"])
    with pytest.raises(TimeoutError):
        call.result(0)
    with pytest.raises(grpcstatus.StatusError) as late:
        call.result(_DEADLINE)
    assert (
        str(late.value)
        == f"rpc error: code = DeadlineExceeded desc = the device plugin of {_RESOURCE} has not responded within 0.2 s"
    )
    goes_on.set()


def test_preferred_allocation_and_pre_start(world: _World) -> None:
    ends = _endpoint(world, lambda ids: pluginapi.AllocateResponse())
    asked: list[pluginapi.PreferredAllocationRequest] = []
    answer = pluginapi.PreferredAllocationResponse()
    answer.container_responses.add(deviceIDs=["1"])

    def prefer(
        request: pluginapi.PreferredAllocationRequest, devices: Mapping[str, pluginapi.Device]
    ) -> pluginapi.PreferredAllocationResponse:
        asked.append(request)
        return answer

    world.stubs[0].get_preferred_alloc_func = prefer
    assert ends.get_preferred_allocation({"1", "2"}, {"2"}, 1).result(_DEADLINE) == answer
    expected = pluginapi.PreferredAllocationRequest()
    expected.container_requests.add(available_deviceIDs=["1", "2"], must_include_deviceIDs=["2"], allocation_size=1)
    assert asked == [expected]
    ends.pre_start_container(["1"])
    assert world.stubs[0].calls == ["pre start 1"]


def test_calls_of_a_plugin_that_was_let_go_meanwhile(world: _World) -> None:
    """Calls of a disconnected plugin fail, as when another plugin registers and the caller does not know it yet."""
    ends = _endpoint(world, lambda ids: pluginapi.AllocateResponse())
    assert isinstance(world.handler.plugin, pluginclient.PluginClient)
    world.handler.plugin.close()
    calls: list[Callable[[], object]] = [
        lambda: ends.get_preferred_allocation({"1"}, set(), 1).result(_DEADLINE),
        lambda: ends.allocate(["1"]).result(_DEADLINE),
        lambda: ends.pre_start_container(["1"]),
    ]
    for call in calls:
        with pytest.raises(grpcstatus.StatusError, match="code = Canceled desc = grpc: the client connection is clos"):
            call()


def test_plugin_that_the_plugin_manager_finds(world: _World) -> None:
    """The kubelet connects to the socket of a plugin that the plugin manager finds."""
    world.start()
    ctx, cancel = golang.with_cancel(golang.background())
    with tempfile.TemporaryDirectory() as found_in:
        manager = pluginmanager.PluginManager(found_in)
        manager.add_handler(registration.DEVICE_PLUGIN, world.server)
        thread = golang.go(manager.run, ctx, name="plugin-manager")
        stub = Stub([device("1")], Path(found_in) / "p.sock", _RESOURCE)
        world.stubs.append(stub)
        stub.start()
        world.handler.expect("connected p.sock", "devices 1:Healthy")
        stub.stop()
        world.handler.expect(f"disconnected {_RESOURCE}")
        cancel()
        thread.join(_DEADLINE)


@pytest.mark.parametrize(
    ("name", "versions", "fault"),
    [
        (
            _RESOURCE,
            ["v1alpha1", "v2"],
            r"manager version, v1beta1, is not among plugin supported versions \[v1alpha1 v2\]",
        ),
        ("gpu", ["v1beta1"], 'invalid name of device plugin socket: the ResourceName "gpu" is invalid'),
    ],
    ids=["versions", "name"],
)
def test_validate_plugin(name: str, versions: list[str], fault: str, world: _World) -> None:
    world.server.validate_plugin(_RESOURCE, "/p.sock", ["v2", "v1beta1"])
    with pytest.raises(ValueError, match=fault):
        world.server.validate_plugin(name, "/p.sock", versions)


def test_a_plugin_that_is_not_there_any_more_takes_no_other_with_it(world: _World) -> None:
    world.start()
    old, new = world.stub("old.sock", device("1")), world.stub("new.sock", device("2"))
    world.server.register_plugin(_RESOURCE, str(world.directory / "old.sock"), ["v1beta1"], None)
    world.server.register_plugin(_RESOURCE, str(world.directory / "new.sock"), ["v1beta1"], None)
    old.stop()
    world.server.deregister_plugin(_RESOURCE, str(world.directory / "old.sock"))
    new.update(device("3"))
    with world.handler.changed:
        world.handler.changed.wait_for(lambda: "devices 3:Healthy" in world.handler.events, _DEADLINE)
        assert f"disconnected {_RESOURCE}" not in world.handler.events
        assert "devices 3:Healthy" in world.handler.events


def test_server_that_cannot_listen(world: _World) -> None:
    world.server.check()
    (world.directory / "kubelet.sock").mkdir()
    with pytest.raises(OSError, match=f"listen unix {world.socket}"):
        world.server.start()
    with pytest.raises(OSError, match=r"device registration error: .* no device plugins can register: listen unix"):
        world.server.check()


def test_stop_and_relative_path(world: _World) -> None:
    world.server.stop()
    world.start()
    world.server.stop()
    world.server.stop()
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(OSError, match=r"No such file|refused"):
        sock.connect(str(world.socket))
    with pytest.raises(ValueError, match=r"bad socketPath, must be an absolute path: kubelet\.sock"):
        plugin.Server("kubelet.sock", world.handler, world.handler, world.clock)
