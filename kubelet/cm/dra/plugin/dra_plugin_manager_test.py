"""Test the registration of DRA plugins, and the calls to them.

Go: pkg/kubelet/cm/dra/plugin/dra_plugin_manager_test.go, dra_plugin_test.go, registration_test.go
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from framework.waiting import wait_for

from kubelet.apis.dra.v1 import DRA_PLUGIN_SERVICE as V1
from kubelet.apis.dra.v1 import api_pb2 as drapb
from kubelet.apis.dra.v1beta1 import DRA_PLUGIN_SERVICE as V1BETA1
from kubelet.apis.dra_health.v1alpha1 import api_pb2 as drahealth
from kubelet.cm.dra import plugin as draplugin
from kubelet.cm.dra.plugin import dra_plugin, dra_plugin_manager
from kubelet.cm.dra.testing import FakeDRADriver
from pkg import golang
from pkg.api.core import v1
from pkg.api.resource import v1 as resourceapi
from pkg.apimachinery.api import errors as apierrors
from pkg.apimachinery.apis.meta import v1 as metav1
from pkg.client_go.kubernetes.testing import Action, FakeClientset
from pkg.golang.testing import out_of_threads, out_of_threads_here
from pkg.util import grpcstatus

DRIVER = "gpu.example.com"
NODE = v1.Node(metadata=metav1.ObjectMeta(name="worker"))
Make = Callable[..., draplugin.DRAPluginManager]


class Listener:
    """Count streams, and collect their messages."""

    def __init__(self, *faults: Exception) -> None:
        # The first streams fail with these errors, one each.
        self.faults = list(faults)
        self.streams = 0
        self.ended = 0
        self.responses: list[Any] = []

    def handle_watch_resources_stream(self, ctx: golang.Context, stream: Iterator[Any], plugin_name: str) -> None:
        self.streams += 1
        if self.faults:
            raise self.faults.pop()
        try:
            self.responses += [(plugin_name, response) for response in stream]
        finally:
            self.ended += 1


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses between attempts."""
    monkeypatch.setattr(dra_plugin_manager, "WIPE_RETRY_DURATION", 0.01)
    monkeypatch.setattr(dra_plugin_manager, "HEALTH_STREAM_RETRY_PERIOD", 0.01)


@pytest.fixture
def make(stack: ExitStack) -> Make:
    """Return a function that creates a manager, which is stopped at the end of the test."""

    def make(client: FakeClientset | None = None, wiping_delay: float = 1000, **more: Any) -> Any:
        get_node = more.pop("get_node", lambda ctx: NODE)
        listener = more.pop("listener", None)
        manager = draplugin.DRAPluginManager(golang.background(), client, get_node, listener, wiping_delay)
        stack.callback(manager.stop)
        return manager

    return make


def new_slice(name: str, driver: str = DRIVER, node: str = "worker") -> resourceapi.ResourceSlice:
    spec = resourceapi.ResourceSliceSpec(driver=driver, node_name=node)
    return resourceapi.ResourceSlice(metadata=metav1.ObjectMeta(name=name), spec=spec)


def slices(client: FakeClientset) -> list[str]:
    return [each.metadata.name for each in client.resource_v1.resource_slices().list(golang.background()).items]


def wait_for_start(client: FakeClientset) -> None:
    """Wait until the manager has deleted the slices of drivers that have not registered."""
    wait_for(
        "the slices of drivers that have not registered are deleted",
        lambda: client.actions("delete-collection", "resourceslices"),
    )


def connected(manager: draplugin.DRAPluginManager) -> bool:
    return manager.get_plugin(DRIVER).connected  # type: ignore[attr-defined, no-any-return]


# ---- Registration ----


@pytest.mark.parametrize(
    ("services", "chosen"),
    [
        ([V1], V1),
        ([V1BETA1], V1BETA1),
        ([V1, V1BETA1], V1),
        (["v1alpha1.DRAResourceHealth", V1BETA1], V1BETA1),
    ],
    ids=["v1", "v1beta1", "both", "and-health"],
)
def test_registration(make: Make, tmp_path: Path, services: list[str], chosen: str) -> None:
    manager, endpoint = make(), str(tmp_path / "dra.sock")
    manager.validate_plugin(DRIVER, endpoint, services)
    with pytest.raises(LookupError, match=r"^DRA driver gpu\.example\.com is not registered$"):
        manager.get_plugin(DRIVER)
    manager.register_plugin(DRIVER, endpoint, services, None)
    plugin = manager.get_plugin(DRIVER)
    assert (plugin.driver_name, plugin.endpoint, plugin.chosen_service) == (DRIVER, endpoint, chosen)
    manager.deregister_plugin(DRIVER, endpoint)
    manager.deregister_plugin(DRIVER, endpoint)
    with pytest.raises(LookupError):
        manager.get_plugin(DRIVER)


@pytest.mark.parametrize(
    ("services", "reason"),
    [
        ([], "empty list of supported gRPC services (aka supported versions)"),
        (
            ["1.0.0", "v1alpha4.Node"],
            'none of services supported by the plugin (["1.0.0" "v1alpha4.Node"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ],
    ids=["none", "unknown"],
)
def test_plugin_that_is_refused(make: Make, services: list[str], reason: str) -> None:
    manager = make()
    acts: list[Callable[[], None]] = [
        lambda: manager.validate_plugin(DRIVER, "/dra.sock", services),
        lambda: manager.register_plugin(DRIVER, "/dra.sock", services, None),
    ]
    for act in acts:
        with pytest.raises(ValueError) as raised:
            act()
        place = f"of DRA driver plugin {DRIVER} at endpoint /dra.sock"
        assert str(raised.value) == f"invalid supported gRPC versions {place}: {reason}"


def test_driver_without_a_name(make: Make) -> None:
    with pytest.raises(LookupError, match="DRA driver name is empty"):
        make().get_plugin("")


def test_more_plugins_than_there_can_be(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of plugins is limited, because one may register under another name each time."""
    monkeypatch.setattr(dra_plugin_manager, "MAX_PLUGINS", 1)
    manager = make()
    manager.register_plugin(DRIVER, "/one.sock", [V1], None)
    with pytest.raises(ValueError, match="there are 1 DRA plugins, which is the maximum"):
        manager.register_plugin("other", "/two.sock", [V1], None)
    assert [name for name in manager.threads() if "other" in name] == []
    manager.deregister_plugin(DRIVER, "/one.sock")
    manager.register_plugin("other", "/two.sock", [V1], None)


def test_plugins_that_left_their_sockets_make_room(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that left their sockets behind make room for new ones.

    A driver may be killed several times, and return with another socket each time.
    """
    monkeypatch.setattr(dra_plugin_manager, "MAX_PLUGINS", 3)
    manager = make()
    with FakeDRADriver(tmp_path / "serving.sock") as serving:
        manager.register_plugin(DRIVER, serving.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        for endpoint in ("/killed.sock", "/starting.sock"):
            manager.register_plugin(DRIVER, endpoint, [V1], None)
        manager.register_plugin("other", "/other.sock", [V1], None)
        # The other plugins serve, or may be about to serve.
        with pytest.raises(ValueError, match="which is the maximum"):
            manager.register_plugin("third", "/third.sock", [V1], None)
        assert manager.get_plugin(DRIVER).endpoint == serving.endpoint
        manager.deregister_plugin(DRIVER, serving.endpoint)
    assert manager.get_plugin(DRIVER).endpoint == "/starting.sock"
    manager.deregister_plugin(DRIVER, "/killed.sock")
    assert manager.get_plugin(DRIVER).endpoint == "/starting.sock"


def test_same_endpoint_twice(make: Make) -> None:
    manager = make()
    manager.register_plugin(DRIVER, "/one.sock", [V1], None)
    with pytest.raises(ValueError, match=rf"endpoint /one\.sock already registered for DRA driver plugin {DRIVER}"):
        manager.register_plugin(DRIVER, "/one.sock", [V1], None)
    manager.register_plugin("other", "/one.sock", [V1], None)


@pytest.mark.parametrize("thread", ["dra-conn-", "dra-health-", "dra-"])
def test_plugin_that_no_thread_is_left_for(make: Make, tmp_path: Path, thread: str) -> None:
    manager = make(FakeClientset(NODE), listener=Listener())
    with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver:
        with out_of_threads(thread), pytest.raises(golang.ThreadError):
            manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        with pytest.raises(LookupError, match="is not registered"):
            manager.get_plugin(DRIVER)
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))


def test_newest_plugin_is_called_that_is_connected(make: Make, tmp_path: Path) -> None:
    manager = make()
    with FakeDRADriver(tmp_path / "old.sock") as old:
        manager.register_plugin(DRIVER, old.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        new = FakeDRADriver(tmp_path / "new.sock")
        manager.register_plugin(DRIVER, new.endpoint, [V1], None)
        assert manager.get_plugin(DRIVER).endpoint == old.endpoint
        with new:
            wait_for("the newest plugin is chosen", lambda: manager.get_plugin(DRIVER).endpoint == new.endpoint)
            manager.deregister_plugin(DRIVER, new.endpoint)
        assert manager.get_plugin(DRIVER).endpoint == old.endpoint
    wait_for("the plugin's connection is lost", lambda: not connected(manager))
    manager.register_plugin(DRIVER, new.endpoint, [V1], None)
    # No plugin is connected, but the last one may still be starting.
    assert manager.get_plugin(DRIVER).endpoint == new.endpoint


def test_nothing_is_left_of_plugins_that_come_and_go(make: Make, tmp_path: Path) -> None:
    """No threads or connections remain, whether the plugin or its registration ends first."""
    listener = Listener()
    manager = make(FakeClientset(), listener=listener)
    threads = files = 0
    for turn in range(12):
        with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver:
            manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
            wait_for("the plugin is connected", lambda: connected(manager))
            if turn % 2:
                manager.deregister_plugin(DRIVER, driver.endpoint)
        manager.deregister_plugin(DRIVER, driver.endpoint)
        del driver
        if turn == 3:
            wait_for(
                "only the thread that waits to delete slices is left",
                lambda: manager.threads() == [f"dra-wipe-{DRIVER}"],
            )
            threads, files = _threads(), _files()
    wait_for("no thread and no open file is left", lambda: _threads() <= threads and _files() <= files)
    wait_for("only the thread that waits to delete slices is left", lambda: manager.threads() == [f"dra-wipe-{DRIVER}"])


def _threads() -> int:
    """Count the threads, except those of the plugin's server."""
    return sum(not thread.name.startswith("ThreadPoolExecutor") for thread in threading.enumerate())


def _files() -> int:
    return len(os.listdir("/proc/self/fd"))


# ---- Calls ----


@pytest.mark.parametrize(("served", "service"), [("v1", V1), ("v1beta1", V1BETA1)])
def test_calls_of_each_version(make: Make, tmp_path: Path, served: str, service: str) -> None:
    manager, ctx = make(), golang.background()
    claim = drapb.Claim(namespace="ns", uid="u", name="c")
    with FakeDRADriver(tmp_path / "dra.sock", (served,)) as driver:
        driver.devices["u"] = [drapb.Device(pool_name="p", device_name="d", cdi_device_ids=["a/b=c"])]
        manager.register_plugin(DRIVER, driver.endpoint, [service], None)
        plugin = manager.get_plugin(DRIVER)
        prepared = plugin.node_prepare_resources(ctx, drapb.NodePrepareResourcesRequest(claims=[claim]))
        assert list(prepared.claims["u"].devices) == driver.devices["u"]
        unprepared = plugin.node_unprepare_resources(ctx, drapb.NodeUnprepareResourcesRequest(claims=[claim]))
        assert list(unprepared.claims) == ["u"]
        assert driver.calls == [("prepare", ["u"]), ("unprepare", ["u"])]


def test_calls_need_no_thread(make: Make, tmp_path: Path) -> None:
    """A call needs no new thread of gRPC's library.

    If gRPC fails to start a thread, the connection never delivers a response again.
    """
    plugin = dra_plugin.DRAPlugin(DRIVER, f"{tmp_path}/dra.sock", V1, 30)
    with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver, out_of_threads_here():
        plugin.node_prepare_resources(golang.background(), drapb.NodePrepareResourcesRequest())
        driver.report(drahealth.DeviceHealth())
        with plugin.node_watch_resources(golang.background()) as stream:
            next(stream)
    plugin.close()
    assert driver.calls == [("prepare", [])]


def test_call_that_is_cancelled(make: Make, tmp_path: Path) -> None:
    plugin = dra_plugin.DRAPlugin(DRIVER, f"{tmp_path}/dra.sock", V1, 30)
    ctx, cancel = golang.with_cancel(golang.background())
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        driver.gate = threading.Event()

        def cancel_once_asked() -> None:
            wait_for("the driver is called", lambda: driver.calls)
            cancel()

        thread = golang.go(cancel_once_asked, name="cancel")
        with pytest.raises(grpcstatus.StatusError, match=r"^rpc error: code = Canceled desc = context canceled$"):
            plugin.node_prepare_resources(ctx, drapb.NodePrepareResourcesRequest())
        thread.join()
    plugin.close()


def test_service_that_is_not_there_after_all(make: Make, tmp_path: Path) -> None:
    manager = make()
    with FakeDRADriver(tmp_path / "dra.sock", ("v1beta1",)) as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        with pytest.raises(grpcstatus.StatusError, match="code = Unimplemented"):
            manager.get_plugin(DRIVER).node_prepare_resources(golang.background(), drapb.NodePrepareResourcesRequest())


def test_call_of_a_plugin_that_was_deregistered(make: Make, tmp_path: Path) -> None:
    manager = make()
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        plugin = manager.get_plugin(DRIVER)
        manager.deregister_plugin(DRIVER, driver.endpoint)
        _assert_closed(plugin)


def test_plugin_that_registers_when_all_has_ended(make: Make, tmp_path: Path) -> None:
    """A plugin that registers after `stop` is closed, because nothing else would close it and end its threads."""
    manager = make(listener=Listener())
    manager.stop()
    with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        _assert_closed(manager.get_plugin(DRIVER))
        wait_for("no thread is left", lambda: manager.threads() == [])


def _assert_closed(plugin: draplugin.DRAPlugin) -> None:
    """Check that calls on a closed connection fail without a crash."""
    ctx, closing = golang.background(), r"^rpc error: code = Canceled desc = grpc: the client connection is closing$"
    with pytest.raises(grpcstatus.StatusError, match=closing):
        plugin.node_prepare_resources(ctx, drapb.NodePrepareResourcesRequest())
    with pytest.raises(grpcstatus.StatusError, match=closing):
        plugin.node_unprepare_resources(ctx, drapb.NodeUnprepareResourcesRequest())
    with pytest.raises(grpcstatus.StatusError, match=closing), plugin.node_watch_resources(ctx):
        pass


# ---- Slices of drivers that are gone ----


def test_all_slices_of_the_node_are_deleted_at_start(make: Make) -> None:
    client = FakeClientset(new_slice("a"), new_slice("b", "other"), new_slice("c", node="another"))
    make(client)
    wait_for("only slice c is left", lambda: slices(client) == ["c"])


def test_deletion_is_tried_again(make: Make) -> None:
    client, failures = FakeClientset(new_slice("a")), [apierrors.new_unauthorized("who"), OSError("no server")]

    def fail(action: Action) -> tuple[bool, Any]:
        return (True, failures.pop()) if failures else (False, None)

    client.prepend_reactor("delete-collection", "resourceslices", fail)
    nodes = [apierrors.new_not_found("nodes", "worker")]

    def get_node(ctx: golang.Context) -> v1.Node:
        if nodes:
            raise nodes.pop()
        return NODE

    make(client, get_node=get_node)
    wait_for("no slice is left", lambda: slices(client) == [])
    assert len(client.actions("delete-collection")) == 3


def test_slices_of_a_plugin_that_is_deregistered_are_deleted(make: Make, tmp_path: Path) -> None:
    client = FakeClientset()
    manager = make(client, 0.01)
    wait_for_start(client)
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        client.add(new_slice("a"))
        client.add(new_slice("b", "other"))
        manager.deregister_plugin(DRIVER, driver.endpoint)
        wait_for("only slice b is left", lambda: slices(client) == ["b"])


def test_slices_are_deleted_once_there_is_a_thread(make: Make, tmp_path: Path) -> None:
    client = FakeClientset(NODE, new_slice("mine"))
    manager = make(client, wiping_delay=0)
    wait_for_start(client)
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        client.resource_v1.resource_slices().create(golang.background(), new_slice("new"))
        plugin = manager.get_plugin(DRIVER)
        with out_of_threads("dra-wipe-"):
            manager.deregister_plugin(DRIVER, driver.endpoint)
        _assert_closed(plugin)
    assert slices(client) == ["new"]
    manager.plan_wipes()
    wait_for("no slice is left", lambda: not slices(client))


def test_slices_of_a_plugin_that_died_are_deleted(make: Make, tmp_path: Path) -> None:
    client = FakeClientset()
    manager = make(client, 0.01)
    wait_for_start(client)
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        client.add(new_slice("a"))
    wait_for("no slice is left", lambda: slices(client) == [])
    assert not connected(manager)


def test_slices_stay_when_the_plugin_comes_back_in_time(make: Make, tmp_path: Path) -> None:
    client = FakeClientset()
    manager = make(client)
    wait_for_start(client)
    driver = FakeDRADriver(tmp_path / "dra.sock")
    with driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the plugin is connected", lambda: connected(manager))
        client.add(new_slice("a"))
    wait_for("the plugin's connection is lost", lambda: not connected(manager))
    assert manager.pending_wipes() == [DRIVER]
    with driver:
        wait_for("the plugin is connected", lambda: connected(manager))
        assert manager.pending_wipes() == []
        assert slices(client) == ["a"]


# ---- Health ----


def test_health_stream_is_read(make: Make, tmp_path: Path) -> None:
    listener = Listener()
    manager = make(listener=listener)
    with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        driver.report(drahealth.DeviceHealth(health=drahealth.HEALTHY))
        driver.report()
        wait_for("the stream of health began", lambda: listener.streams)
        manager.deregister_plugin(DRIVER, driver.endpoint)
        wait_for("the stream of health ended", lambda: listener.ended)
    assert listener.streams == 1


def test_health_stream_begins_anew(make: Make, tmp_path: Path) -> None:
    listener = Listener()
    manager = make(listener=listener)
    driver = FakeDRADriver(tmp_path / "dra.sock", health=True)
    with driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the stream of health began", lambda: listener.streams)
    driver.report(drahealth.DeviceHealth(health=drahealth.UNHEALTHY))
    with driver:
        wait_for("the plugin is connected", lambda: connected(manager))
        seen = listener.streams
        wait_for(
            "the stream of health ended or began anew",
            lambda: listener.streams > seen or listener.ended < listener.streams,
        )


def test_health_that_cannot_be_taken_is_asked_for_again(make: Make, tmp_path: Path) -> None:
    listener = Listener(RecursionError("too deep"), UnicodeError("no text"), MemoryError())
    manager = make(listener=listener)
    with FakeDRADriver(tmp_path / "dra.sock", health=True) as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("health is asked for a fourth time", lambda: listener.streams == 4)


class NonsenseHealth(grpc.GenericRpcHandler):
    """Serve a health service that sends undecodable data, and ends no stream by itself."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        return grpc.unary_stream_rpc_method_handler(self._watch)

    def _watch(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        assert context.add_callback(self.ended.set)
        yield b"\xff"
        self.ended.wait()


def test_health_stream_that_cannot_be_decoded_is_ended(tmp_path: Path) -> None:
    service = NonsenseHealth()
    server = grpc.server(futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"unix:{tmp_path}/dra.sock")
    server.start()
    plugin = dra_plugin.DRAPlugin(DRIVER, f"{tmp_path}/dra.sock", V1, 30)
    ctx = golang.background()
    with pytest.raises(grpcstatus.StatusError, match="cannot be decoded"), plugin.node_watch_resources(ctx) as stream:
        next(stream)
    ended = service.ended.wait(30)
    plugin.close()
    server.stop(None).wait()
    assert ended


def test_plugin_without_health_is_asked_once(make: Make, tmp_path: Path) -> None:
    listener = Listener()
    manager = make(listener=listener)
    with FakeDRADriver(tmp_path / "dra.sock") as driver:
        manager.register_plugin(DRIVER, driver.endpoint, [V1], None)
        wait_for("the stream of health ended", lambda: listener.ended)
        wait_for("only the thread of the connection is left", lambda: manager.threads() == [f"dra-conn-{DRIVER}"])
    assert listener.streams == 1
