"""Test the whole plugin manager with real sockets, inotify and gRPC."""

from __future__ import annotations

import ctypes
import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework.waiting import wait_for
from watchdog.observers import inotify_c

from kubelet.apis.pluginregistration import v1 as registration
from kubelet.pluginmanager import PluginManager, cache, metrics
from kubelet.pluginmanager.operationexecutor import operation_generator
from kubelet.pluginmanager.operationexecutor.operation_generator import OperationGenerator
from kubelet.pluginmanager.pluginwatcher import plugin_watcher
from kubelet.pluginmanager.testing import DEADLINE, ExamplePlugin, FakePluginHandler
from pkg import golang
from pkg.apimachinery.clock import testing as testingclock
from pkg.component_base.metrics import legacyregistry
from pkg.golang.testing import frames_kept_after, out_of_threads, out_of_threads_here

VERSIONS = "v1beta1 v1beta2"
# This time, in seconds, is longer than any backoff.
_LONG = 600.0


class World:
    """Run a plugin manager with a handler of device plugins, and plugins that start and stop."""

    def __init__(self, sock_dir: Path) -> None:
        self.sock_dir = sock_dir
        self.handler = FakePluginHandler()
        # A failed operation is not repeated until the test advances the clock.
        self.clock = testingclock.FakeClock()
        self.manager = PluginManager(str(sock_dir), self.clock)
        self.manager.add_handler(registration.DEVICE_PLUGIN, self.handler)
        self.plugins: list[ExamplePlugin] = []
        self.ctx, self.cancel = golang.with_cancel(golang.background())
        self.thread: golang.Thread | None = None

    def start(self) -> None:
        self.thread = golang.go(self.manager.run, self.ctx, name="plugin-manager-test")

    def plugin(self, name: str, socket_name: str = "plugin.sock", **options: object) -> ExamplePlugin:
        plugin = ExamplePlugin(name, self.sock_dir / socket_name, **options)  # type: ignore[arg-type]
        self.plugins.append(plugin)
        plugin.serve()
        return plugin

    def expect_retry(self, plugin: ExamplePlugin) -> None:
        """Advance the clock past the backoff until the plugin is registered."""

        def is_told() -> bool:
            self.clock.step(_LONG)
            status, ok = plugin.statuses.recv(0.1)
            assert status is None or status.plugin_registered
            return ok

        wait_for("the plugin is told of its registration", is_told)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "plugins_registry")
    yield world
    for plugin in world.plugins:
        plugin.stop()
    world.cancel()
    if world.thread is not None:
        world.thread.join(DEADLINE)
        assert not world.thread.is_alive()


@pytest.mark.parametrize("depth", range(3))
def test_plugin_manager(world: World, depth: int) -> None:
    world.start()
    directory = "/".join(str(level) for level in range(depth))
    (world.sock_dir / directory).mkdir(parents=True, exist_ok=True)
    plugin = world.plugin("example", f"{directory}/plugin.sock".lstrip("/"))
    path = plugin.socket_path
    assert plugin.expect_status().plugin_registered
    world.handler.expect(f"validate example {path}", f"register example {path} {VERSIONS}")
    plugin.stop()
    world.handler.expect(f"deregister example {path}")


def test_plugin_is_registered_without_threads_of_the_library(world: World) -> None:
    """A plugin is registered even if gRPC gets no thread.

    A call that needs a thread of gRPC would keep its connection from being closed, and the registration would never
    end.
    """
    world.sock_dir.mkdir()
    plugin = world.plugin("example")
    handlers: dict[str, cache.PluginHandler] = {registration.DEVICE_PLUGIN: world.handler}
    register = OperationGenerator().generate_register_plugin_func(
        world.ctx, str(plugin.socket_path), "uuid", handlers, cache.ActualStateOfWorld()
    )
    with out_of_threads_here():
        register()
    assert plugin.expect_status().plugin_registered


def test_plugin_that_was_there_before_the_start_serves_elsewhere(world: World) -> None:
    world.sock_dir.mkdir()
    plugin = world.plugin("example", endpoint="/run/other.sock")
    world.start()
    assert plugin.expect_status().plugin_registered
    world.handler.expect("validate example /run/other.sock", f"register example /run/other.sock {VERSIONS}")


def first_and_second(world: World) -> tuple[Path, ExamplePlugin]:
    """Register a plugin "first", and return its path and a plugin "second" whose socket still has a hidden name."""
    world.sock_dir.mkdir()
    world.start()
    first = world.plugin("first")
    path = first.socket_path
    first.expect_status()
    world.handler.expect(f"validate first {path}", f"register first {path} {VERSIONS}")
    return path, world.plugin("second", ".second")


def test_new_socket_at_the_same_path_is_another_plugin(world: World) -> None:
    path, second = first_and_second(world)
    second.socket_path.rename(path)
    assert second.expect_status().plugin_registered
    world.handler.expect(f"deregister first {path}", f"validate second {path}", f"register second {path} {VERSIONS}")


def test_plugin_is_deregistered_before_another_takes_its_place(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin is deregistered before another one is registered at its path, even if no thread is free at first."""
    path, second = first_and_second(world)
    start = golang.Thread.start
    names: list[str] = []

    def refuse_once(thread: golang.Thread) -> None:
        if thread.name == f"operation-{path}" and not names:
            names.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(golang.Thread, "start", refuse_once)
    second.socket_path.rename(path)
    world.expect_retry(second)
    world.handler.expect(f"deregister first {path}", f"validate second {path}", f"register second {path} {VERSIONS}")


def refused(world: World, plugin: ExamplePlugin) -> str:
    status = plugin.expect_status()
    assert not status.plugin_registered
    return status.error


def test_unknown_type_is_refused_until_there_is_a_handler(world: World) -> None:
    world.sock_dir.mkdir()
    plugin = world.plugin("gpu", plugin_type=registration.DRA_PLUGIN)
    world.start()
    message = f"RegisterPlugin error -- no handler registered for plugin type: DRAPlugin at socket {plugin.socket_path}"
    assert refused(world, plugin) == message
    handler = FakePluginHandler()
    world.manager.add_handler(registration.DRA_PLUGIN, handler)
    world.expect_retry(plugin)
    handler.expect(f"validate gpu {plugin.socket_path}", f"register gpu {plugin.socket_path} {VERSIONS}")


FAILURES: list[tuple[str, Callable[[FakePluginHandler], None], str, list[str]]] = [
    (
        "validation",
        lambda handler: setattr(handler, "validate_err", ValueError("too old")),
        "plugin validation failed with err: too old",
        ["validate"],
    ),
    (
        "registration",
        lambda handler: setattr(handler, "register_err", OSError("cannot connect")),
        "plugin registration failed with err: cannot connect",
        ["validate", "register"],
    ),
]


@pytest.mark.parametrize(("fail", "message", "calls"), [row[1:] for row in FAILURES], ids=[row[0] for row in FAILURES])
def test_handler_that_refuses(
    world: World, fail: Callable[[FakePluginHandler], None], message: str, calls: list[str]
) -> None:
    fail(world.handler)
    world.sock_dir.mkdir()
    plugin = world.plugin("example")
    world.start()
    assert refused(world, plugin) == f"RegisterPlugin error -- {message}"
    assert [event.split()[0] for event in world.handler.events] == calls
    world.handler.events = []
    world.handler.validate_err = world.handler.register_err = None
    world.expect_retry(plugin)


@pytest.mark.parametrize("step", ["", "validate_plugin", "register_plugin"])
def test_nothing_stays_of_what_a_plugin_says_that_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(*args: object) -> None:
        raise ValueError("not this one")

    handlers: dict[str, cache.PluginHandler] = {}
    if step:
        monkeypatch.setattr(world.handler, step, refuse)
        handlers = {registration.DEVICE_PLUGIN: world.handler}
    world.sock_dir.mkdir()
    plugin = world.plugin("example")
    register = OperationGenerator().generate_register_plugin_func(
        world.ctx, str(plugin.socket_path), "uuid", handlers, cache.ActualStateOfWorld()
    )
    assert "register_plugin_func" not in frames_kept_after(register)
    assert not plugin.expect_status().plugin_registered


def test_plugin_that_is_started_anew_need_not_wait(world: World) -> None:
    world.handler.validate_err = ValueError("too old")
    world.sock_dir.mkdir()
    old = world.plugin("example")
    world.start()
    refused(world, old)
    old.stop()
    world.handler.validate_err = None
    # The clock does not advance, so the backoff has not ended.
    assert world.plugin("example").expect_status().plugin_registered


def test_plugin_that_answers_late_has_the_time_left_of_connecting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_generator, "GET_INFO_TIMEOUT_DURATION", 0.0)
    world.sock_dir.mkdir()
    world.start()
    assert world.plugin("example").expect_status().plugin_registered


def test_nothing_is_remembered_of_a_socket_that_is_gone(world: World) -> None:
    world.handler.validate_err = ValueError("too old")
    world.sock_dir.mkdir()
    old = world.plugin("example")
    world.start()
    refused(world, old)
    old.stop()
    reconciler = world.manager._reconciler
    failures = reconciler._operation_executor._pending_operations
    forgotten = golang.go(failures.wait, name="wait-until-forgotten")
    forgotten.join(DEADLINE)
    assert not forgotten.is_alive() and reconciler._tried == {}


def test_plugin_that_cannot_be_told_is_taken_back(world: World) -> None:
    world.sock_dir.mkdir()
    plugin = world.plugin("example", fail=["NotifyRegistrationStatus"])
    world.start()
    path = plugin.socket_path
    world.handler.expect(
        f"validate example {path}", f"register example {path} {VERSIONS}", f"deregister example {path}"
    )


def test_what_is_no_plugin_is_left_alone(world: World) -> None:
    world.sock_dir.mkdir()
    (world.sock_dir / "file.sock").write_text("")
    with socket.socket(socket.AF_UNIX) as hidden:
        hidden.bind(str(world.sock_dir / ".hidden.sock"))
        world.start()
        plugin = world.plugin("example")
        assert plugin.expect_status().plugin_registered
    world.handler.expect(f"validate example {plugin.socket_path}", f"register example {plugin.socket_path} {VERSIONS}")


def test_plugin_registers_once_there_is_a_thread_for_it(world: World) -> None:
    with out_of_threads("operation-") as refused:
        world.sock_dir.mkdir()
        world.start()
        plugin = world.plugin("example")
        wait_for("a thread is refused", lambda: refused)
    world.expect_retry(plugin)


def test_sockets_are_watched_once_that_is_possible(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch starts when inotify instances are free again, after a root pod had used them all."""
    instances, failed = inotify_c.inotify_init, golang.Channel[None](10)

    def none_left() -> int:
        failed.send(None)
        ctypes.set_errno(errno.EMFILE)
        return -1

    monkeypatch.setattr(plugin_watcher, "WATCH_RETRY_PERIOD", 0.01)
    monkeypatch.setattr(inotify_c, "inotify_init", none_left)
    world.sock_dir.mkdir()
    world.start()
    assert failed.recv(DEADLINE)[1]
    monkeypatch.setattr(inotify_c, "inotify_init", instances)
    assert world.plugin("example").expect_status().plugin_registered


def test_socket_whose_name_is_no_text_hides_no_metrics(tmp_path: Path) -> None:
    asw, dsw = cache.ActualStateOfWorld(), cache.DesiredStateOfWorld()
    dsw.add_or_update_plugin(os.fsdecode(b"/plugins/\xff.sock"))
    metrics.register(asw, dsw)
    assert 'socket_path="/plugins/\ufffd.sock"' in legacyregistry.expose().decode()
    metrics.register(asw, cache.DesiredStateOfWorld())
