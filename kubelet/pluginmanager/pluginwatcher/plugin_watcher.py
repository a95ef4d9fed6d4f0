"""Notes each socket below a directory as a plugin to register, as long as it is there.

Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, plugin_watcher_others.go
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from watchdog.observers import inotify_c

from kubelet import util
from kubelet.pluginmanager import cache
from pkg import golang, klog
from pkg.util import filesystem, filetree, inotify

# Seconds after which what could not be watched or looked at is tried again.
WATCH_RETRY_PERIOD = 10.0
# What is said of a path at which there is nothing any more, or a link that leads nowhere.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
# DIVERGES (fault of Go): a socket that is moved away, or whose directory is, counts as removed.
# Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: its plugin stays registered.
# Why: the kubelet would go on to call a plugin whose socket is gone.
# Test: plugin_watcher_test.py:test_moved_directory_takes_its_sockets_along
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE
    | inotify_c.InotifyConstants.IN_MOVED_FROM
)


class Watcher:
    """Follows one directory and all below it, with inotify, and looks at all of it again after a failure."""

    def __init__(self, sock_dir: str, desired_state_of_world: cache.DesiredStateOfWorld) -> None:
        self.path = sock_dir
        self._desired_state_of_world = desired_state_of_world
        # Has something to receive when all is to be looked at again.
        self._failed: golang.Channel[None] = golang.Channel(1)
        self._retry: golang.Thread | None = None
        self._lock = threading.Lock()  # held for an event or for a look at everything; guards the three below
        self._fs_watcher: inotify.Inotify | None = None
        # What takes a watch back, by its directory.
        self._watches: dict[str, tuple[inotify_c.WatchDescriptor, inotify_c.CallbackId]] = {}
        # The device and inode of each socket that was noted, by its path.
        self._noted: dict[str, tuple[int, int]] = {}

    def start(self, ctx: golang.Context) -> None:
        """Note the sockets that are there, and from then on those that come and go, until ctx ends.

        Raises OSError when the directory can neither be found nor made, or cannot be watched, and RuntimeError when
        there is no thread to be had. It may then be called again.
        """
        klog.v(2).info_s("Plugin Watcher Start", path=self.path)
        with self._lock:
            self._init()
            if self._fs_watcher is None:
                self._fs_watcher = inotify.Inotify("plugin-watcher")
            self._watch_above()
            self._watch(self.path)
            self.traverse_plugin_dir(self.path)
        if self._retry is None:
            self._retry = golang.go(self._retry_until_done, ctx, self._fs_watcher, name="plugin-watcher-retry")
        self._fs_watcher.start()

    def wait(self) -> None:
        """Return when the threads have ended."""
        if self._fs_watcher is not None and self._fs_watcher.ident is not None:
            self._fs_watcher.join()
        if self._retry is not None:
            self._retry.join()

    def _retry_until_done(self, ctx: golang.Context, fs_watcher: inotify.Inotify) -> None:
        """Look at everything again after a failure; when ctx has ended, stop to watch.

        DIVERGES (safer): a directory that could not be watched or looked at is tried again every ten seconds.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).traversePluginDir: tries once.
        Why: if all of root's inotify watches are in use for a while, no plugin below the directory would register.
        Test: plugin_watcher_test.py:test_directory_that_could_not_be_watched_is_tried_again
        """
        while not golang.select(ctx.done(), self._failed).took(ctx.done()) and not ctx.wait(WATCH_RETRY_PERIOD):
            with self._lock, self._trying(self.path):
                self._look_at_all()
        # Only now: nothing may be watched with the descriptor once it is closed.
        fs_watcher.stop()

    def _init(self) -> None:
        klog.v(4).info_s("Ensuring Plugin directory", path=self.path)
        try:
            filesystem.mkdir_all(self.path, 0o755)
        except OSError as err:
            raise OSError(err.errno, f"error (re-)creating root {self.path}: {err.strerror}") from err

    def _watch_above(self) -> None:
        """Have it known when somebody removes or moves the directory.

        DIVERGES (safer): a directory of plugins that was removed or moved away is made and watched anew.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: does not learn that it is gone.
        Why: no plugin would register any more until the kubelet is restarted.
        Test: plugin_watcher_test.py:test_directory_that_was_taken_away_is_made_and_watched_anew
        """
        above = os.path.dirname(self.path)
        with self._trying(above):
            self._watch(above)

    def traverse_plugin_dir(self, directory: str) -> None:
        """Watch the directory and all below, and note the sockets. What fails is tried again later."""
        with self._trying(directory):
            self._watch(directory)
        for parent, entry in filetree.walk(directory, one_filesystem=False, on_error=self._note_failure):
            path = os.path.join(parent.path(), entry.name)
            with self._trying(path):
                if entry.is_dir(follow_symlinks=False):
                    self._watch(path)
                elif util.is_unix_domain_socket(path):
                    self.handle_create_event(path)
                else:
                    klog.v(5).info_s("Ignoring file", path=path)

    @contextmanager
    def _trying(self, path: str) -> Iterator[None]:
        try:
            yield
        except Exception as err:
            # Whatever goes wrong with what is at the path, other plugins are seen to, and all is looked at later.
            klog.error_s(err, "Error when handling plugin path", path=path)
            if not isinstance(err, OSError) or err.errno not in _GONE:
                self._failed.try_send(None)

    def _note_failure(self, err: OSError) -> None:
        _log_inaccessible(err)
        if err.errno not in _GONE:
            self._failed.try_send(None)

    def _watch(self, directory: str) -> None:
        assert self._fs_watcher is not None
        callback = _WatchCallback(self, directory)
        callback_id = inotify_c.CallbackId(id(callback))
        try:
            descriptor = self._fs_watcher.add_callback(os.fsencode(directory), _MASK, callback, callback_id)
        except OSError as err:
            raise OSError(err.errno, f"failed to watch {directory}, err: {err.strerror}") from err
        # Only now, so that a directory that is watched already loses no event.
        self._unwatch(directory)
        self._watches[directory] = descriptor, callback_id

    def _unwatch(self, directory: str) -> None:
        assert self._fs_watcher is not None
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._fs_watcher.remove_callbacks([watch])

    def handle_create_event(self, path: str) -> None:
        """Something is new at the path: a plugin, if it is a socket whose name does not start with a dot.

        Raises OSError when it cannot be looked at, or be watched.
        """
        klog.v(6).info_s("Handling create event", event=path)
        info = Path(path).stat()
        name = os.path.basename(path)
        if name.startswith("."):
            klog.v(5).info_s("Ignoring file (starts with '.')", path=name)
        elif stat.S_ISDIR(info.st_mode) and os.path.islink(path):
            # Not all below it, which may be the whole file system.
            self._watch(path)
        elif stat.S_ISDIR(info.st_mode):
            self.traverse_plugin_dir(path)
        elif stat.S_ISSOCK(info.st_mode):
            # DIVERGES (fault of Go): a socket that is found in a new directory and has an event as well is one plugin.
            # Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).handleCreateEvent: it is two.
            # Why: the plugin would be registered, deregistered at once, and registered again.
            # Test: plugin_watcher_test.py:test_socket_that_is_found_twice_is_one
            if self._noted.get(path) != (info.st_dev, info.st_ino):
                self.handle_plugin_registration(path)
                self._noted[path] = info.st_dev, info.st_ino
        else:
            klog.v(5).info_s("Ignoring non socket file", path=name)

    def handle_plugin_registration(self, socket_path: str) -> None:
        """Want the plugin. A socket that is wanted already may be a new one at the same path."""
        klog.v(2).info_s("Adding socket path or updating timestamp to desired state cache", path=socket_path)
        self._desired_state_of_world.add_or_update_plugin(socket_path)

    def handle_delete_event(self, path: str) -> None:
        """What was at the path is gone, and all that was below."""
        klog.v(6).info_s("Handling delete event", event=path)
        klog.v(2).info_s("Removing socket path from desired state cache", path=path)
        self._noted.pop(path, None)
        self._desired_state_of_world.remove_plugin(path)
        below = path + os.sep
        for directory in [known for known in self._watches if known == path or known.startswith(below)]:
            self._unwatch(directory)
        for plugin in self._desired_state_of_world.get_plugins_to_register():
            if plugin.socket_path.startswith(below):
                self._noted.pop(plugin.socket_path, None)
                self._desired_state_of_world.remove_plugin(plugin.socket_path)

    def handle_lost_events(self) -> None:
        """Take what is there for new, and what is not for gone.

        DIVERGES (safer): when the kernel has dropped events of inotify, all sockets are looked at again.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: logs that they were lost.
        Why: plugins would stay unknown, or registered without a socket.
        Test: plugin_watcher_test.py:test_lost_events_are_made_up_for
        """
        klog.error_s(None, "FsWatcher received error", path=self.path)
        self._noted.clear()
        self._look_at_all()

    def _look_at_all(self) -> None:
        """Note what came and went unseen."""
        self._init()
        self._watch_above()
        self.traverse_plugin_dir(self.path)
        # In this order: what goes from now on is an event.
        for plugin in self._desired_state_of_world.get_plugins_to_register():
            if _is_gone(plugin.socket_path):
                self.handle_delete_event(plugin.socket_path)


def _is_gone(path: str) -> bool:
    """Not if that cannot be told: the plugin would be deregistered, and its driver used no more."""
    try:
        return not filesystem.exists(path)
    except OSError as err:
        _log_inaccessible(err)
        return False


def _log_inaccessible(err: OSError) -> None:
    klog.error_s(err, "Error accessing path", path=err.filename)


@dataclass(frozen=True, slots=True)
class _WatchCallback:
    """Hands on what happens in one directory."""

    watcher: Watcher
    directory: str

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        path = os.path.join(self.directory, os.fsdecode(event.name))
        with self.watcher._lock, self.watcher._trying(path):
            if self.directory == os.path.dirname(self.watcher.path):
                if path == self.watcher.path:
                    self.watcher._failed.try_send(None)
            elif event.is_delete or event.is_moved_from:
                self.watcher.handle_delete_event(path)
            else:
                self.watcher.handle_create_event(path)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """The directory above, if it is watched, tells of that."""

    def on_queue_overflow(self) -> None:
        if self.directory == self.watcher.path:
            with self.watcher._lock, self.watcher._trying(self.directory):
                self.watcher.handle_lost_events()
