"""Test the plugin watcher on a real file system with real inotify."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest
from watchdog.observers import inotify_c

from kubelet.pluginmanager import cache, pluginwatcher
from kubelet.pluginmanager.pluginwatcher import plugin_watcher
from pkg import golang

DEADLINE = 30.0


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.dsw = cache.DesiredStateOfWorld()
        self.watcher = pluginwatcher.Watcher(str(directory), self.dsw)
        self.sockets = ExitStack()
        self.ctx, self.cancel = golang.with_cancel(golang.background())

    def bind(self, name: str) -> Path:
        path = self.directory / name
        self.sockets.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        return path

    def expect(self, *names: str) -> dict[str, str]:
        """Wait until exactly these sockets are in the desired state, and return their uuids by name."""
        wanted = {str(self.directory / name) for name in names}
        end = monotonic() + DEADLINE
        while (seen := {p.socket_path: p.uuid for p in self.dsw.get_plugins_to_register()}).keys() != wanted:
            assert monotonic() < end, f"expected {wanted}, got {seen}"
            self.dsw.changed().recv(DEADLINE)
        return {Path(path).name: uuid for path, uuid in seen.items()}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "r")
    yield world
    world.cancel()
    world.watcher.wait()
    world.sockets.close()


def test_sockets_before_and_after_the_start(world: World) -> None:
    (world.directory / "a").mkdir(parents=True)
    world.bind("a/early.sock")
    world.watcher.start(world.ctx)
    late = world.bind("late.sock")
    world.expect("a/early.sock", "late.sock")
    late.unlink()
    world.expect("a/early.sock")


def test_socket_at_the_same_path_is_another(world: World) -> None:
    world.watcher.start(world.ctx)
    path = world.bind("x.sock")
    before = world.expect("x.sock")
    path.unlink()
    world.expect()
    world.bind("x.sock")
    assert world.expect("x.sock") != before


def test_socket_that_is_found_twice_is_one(world: World) -> None:
    world.watcher.start(world.ctx)
    path = world.bind("x.sock")
    before = world.expect("x.sock")
    world.cancel()
    world.watcher.wait()
    world.watcher.handle_create_event(str(path))
    assert world.expect("x.sock") == before
    path.rename(world.directory / ".x.sock")
    world.bind("x.sock")
    world.watcher.handle_create_event(str(path))
    assert world.expect("x.sock") != before


def test_moved_directory_takes_its_sockets_along(world: World) -> None:
    world.watcher.start(world.ctx)
    (world.directory / "a").mkdir()
    world.bind("a/x.sock")
    world.expect("a/x.sock")
    (world.directory / "a").rename(world.directory / "b")
    world.expect("b/x.sock")
    world.bind("b/y.sock")
    world.expect("b/x.sock", "b/y.sock")


def test_tree_that_a_link_leads_to_is_not_looked_through(world: World) -> None:
    elsewhere = world.directory.parent / "elsewhere"
    (elsewhere / "below").mkdir(parents=True)
    world.watcher.start(world.ctx)
    world.bind("../elsewhere/below/x.sock")
    (world.directory / "link").symlink_to(elsewhere)
    world.bind("y.sock")
    world.expect("y.sock")
    world.bind("../elsewhere/z.sock")
    world.expect("y.sock", "link/z.sock")


def test_lost_events_are_made_up_for(world: World) -> None:
    world.watcher.start(world.ctx)
    world.bind("x.sock")
    world.expect("x.sock")
    world.cancel()
    world.watcher.wait()
    (world.directory / "x.sock").unlink()
    world.bind("y.sock")
    world.watcher = pluginwatcher.Watcher(str(world.directory), world.dsw)
    world.ctx, world.cancel = golang.with_cancel(golang.background())
    world.watcher.start(world.ctx)
    world.watcher.handle_lost_events()
    world.expect("y.sock")
    world.bind("z.sock")
    world.expect("y.sock", "z.sock")


def test_plugin_that_cannot_be_looked_at_is_not_taken_for_gone(tmp_path: Path) -> None:
    dsw = cache.DesiredStateOfWorld()
    # A path that is too long cannot be read, like a path on a faulty disk.
    path = str(tmp_path / ("a" * 300))
    dsw.add_or_update_plugin(path)
    dsw.add_or_update_plugin(str(tmp_path / "gone.sock"))
    watcher = pluginwatcher.Watcher(str(tmp_path), dsw)
    ctx, cancel = golang.with_cancel(golang.background())
    watcher.start(ctx)
    watcher.handle_lost_events()
    cancel()
    watcher.wait()
    assert [plugin.socket_path for plugin in dsw.get_plugins_to_register()] == [path]


def test_directory_that_could_not_be_watched_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that could not be watched, because all of root's watches were in use, is tried again.

    Plugins in other directories do not wait for that.
    """
    add_watch, failed = inotify_c.inotify_add_watch, golang.Channel[bytes](10)

    def none_left(fd: int, path: bytes, mask: int) -> inotify_c.WatchDescriptor:
        if path == os.fsencode(world.directory):
            return add_watch(fd, path, mask)
        failed.try_send(path)
        ctypes.set_errno(errno.ENOSPC)
        return inotify_c.WatchDescriptor(-1)

    monkeypatch.setattr(plugin_watcher, "WATCH_RETRY_PERIOD", 0.01)
    monkeypatch.setattr(inotify_c, "inotify_add_watch", none_left)
    for name in "abc":
        (world.directory / name).mkdir(parents=True)
        world.bind(f"{name}/early.sock")
    world.watcher.start(world.ctx)
    (world.directory / "d").mkdir()
    world.expect("a/early.sock", "b/early.sock", "c/early.sock")
    assert failed.recv(DEADLINE)[1]
    monkeypatch.setattr(inotify_c, "inotify_add_watch", add_watch)
    for name in "abcd":
        world.bind(f"{name}/late.sock")
    (world.directory / "a/early.sock").unlink()
    world.expect("b/early.sock", "c/early.sock", *(f"{name}/late.sock" for name in "abcd"))


@pytest.mark.parametrize("moved", [True, False])
def test_directory_that_was_taken_away_is_made_and_watched_anew(
    world: World, monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    monkeypatch.setattr(plugin_watcher, "WATCH_RETRY_PERIOD", 0.01)
    world.watcher.start(world.ctx)
    world.bind("x.sock")
    world.expect("x.sock")
    if moved:
        world.directory.rename(world.directory.parent / "old")
    else:
        shutil.rmtree(world.directory)
    world.expect()
    world.directory.mkdir(exist_ok=True)
    world.bind("y.sock")
    world.expect("y.sock")
    world.bind("z.sock")
    world.expect("y.sock", "z.sock")


def test_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    watcher = pluginwatcher.Watcher(str(tmp_path / "file/r"), cache.DesiredStateOfWorld())
    with pytest.raises(OSError, match=r"error \(re-\)creating root .*/file/r: Not a directory"):
        watcher.start(golang.background())
