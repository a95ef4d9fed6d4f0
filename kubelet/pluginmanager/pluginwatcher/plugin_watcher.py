"""Keep each socket below a directory in the desired state while it exists.

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

# The watcher tries again to watch or read a path after this time, in seconds.
WATCH_RETRY_PERIOD = 10.0
# These errors mean that a path no longer exists or is a dangling link.
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
# DIVERGES (fault of Go): a socket counts as removed if it, or its directory, is moved away.
# Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: the plugin stays registered.
# Why: the kubelet would continue to call a plugin whose socket is gone.
# Test: plugin_watcher_test.py:test_moved_directory_takes_its_sockets_along
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE
    | inotify_c.InotifyConstants.IN_MOVED_FROM
)


class Watcher:
    """Watch a directory and everything below it with inotify, and scan all of it again after a failure."""

    def __init__(self, sock_dir: str, desired_state_of_world: cache.DesiredStateOfWorld) -> None:
        self.path = sock_dir
        self._desired_state_of_world = desired_state_of_world
        # The channel has an item if everything must be scanned again.
        self._failed: golang.Channel[None] = golang.Channel(1)
        self._retry: golang.Thread | None = None
        self._lock = threading.Lock()  # The lock is held during an event or a scan, and guards the three fields below.
        self._fs_watcher: inotify.Inotify | None = None
        # The keys are directories, the values the handles that remove their watches.
        self._watches: dict[str, tuple[inotify_c.WatchDescriptor, inotify_c.CallbackId]] = {}
        # The keys are the paths of the sockets in the desired state, the values their devices and inodes.
        self._noted: dict[str, tuple[int, int]] = {}

    def start(self, ctx: golang.Context) -> None:
        """Add the existing sockets to the desired state, and follow changes until ctx ends.

        Raise OSError if the directory cannot be found, created or watched, and RuntimeError if no thread is free. The
        caller may then call this method again.
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
        """Wait until the threads have ended."""
        if self._fs_watcher is not None and self._fs_watcher.ident is not None:
            self._fs_watcher.join()
        if self._retry is not None:
            self._retry.join()

    def _retry_until_done(self, ctx: golang.Context, fs_watcher: inotify.Inotify) -> None:
        """Scan everything again after a failure, and stop the watch when ctx has ended.

        DIVERGES (safer): the kubelet tries again every ten seconds to watch or read a directory after a failure.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).traversePluginDir: the Go kubelet
        tries once.
        Why: if all of root's inotify watches are temporarily in use, no plugin below the directory would register.
        Test: plugin_watcher_test.py:test_directory_that_could_not_be_watched_is_tried_again
        """
        while not golang.select(ctx.done(), self._failed).took(ctx.done()) and not ctx.wait(WATCH_RETRY_PERIOD):
            with self._lock, self._trying(self.path):
                self._look_at_all()
        # Stop only here: no code may add a watch after the descriptor is closed.
        fs_watcher.stop()

    def _init(self) -> None:
        klog.v(4).info_s("Ensuring Plugin directory", path=self.path)
        try:
            filesystem.mkdir_all(self.path, 0o755)
        except OSError as err:
            raise OSError(err.errno, f"error (re-)creating root {self.path}: {err.strerror}") from err

    def _watch_above(self) -> None:
        """Watch the parent directory, to notice that the plugins' directory was removed or moved.

        DIVERGES (safer): the kubelet creates and watches the plugins' directory again if it was removed or moved away.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: the Go kubelet does not notice
        that.
        Why: no plugin could register until the kubelet is restarted.
        Test: plugin_watcher_test.py:test_directory_that_was_taken_away_is_made_and_watched_anew
        """
        above = os.path.dirname(self.path)
        with self._trying(above):
            self._watch(above)

    def traverse_plugin_dir(self, directory: str) -> None:
        """Watch the directory and everything below it, and add the sockets. A later scan repeats what fails."""
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
            # Continue with the other plugins after any error; a later scan covers this path again.
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
        # Remove the old watch only now, so that a directory that is already watched loses no event.
        self._unwatch(directory)
        self._watches[directory] = descriptor, callback_id

    def _unwatch(self, directory: str) -> None:
        assert self._fs_watcher is not None
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._fs_watcher.remove_callbacks([watch])

    def handle_create_event(self, path: str) -> None:
        """Handle a new path: it is a plugin if it is a socket whose name does not start with a dot.

        Raise OSError if the path cannot be read or watched.
        """
        klog.v(6).info_s("Handling create event", event=path)
        info = Path(path).stat()
        name = os.path.basename(path)
        if name.startswith("."):
            klog.v(5).info_s("Ignoring file (starts with '.')", path=name)
        elif stat.S_ISDIR(info.st_mode) and os.path.islink(path):
            # Do not watch what is below the link's target, which may be the whole file system.
            self._watch(path)
        elif stat.S_ISDIR(info.st_mode):
            self.traverse_plugin_dir(path)
        elif stat.S_ISSOCK(info.st_mode):
            # DIVERGES (fault of Go): a socket that both a scan and an event report is one plugin.
            # Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).handleCreateEvent: it counts as
            # two.
            # Why: the plugin would be registered, deregistered at once, and registered again.
            # Test: plugin_watcher_test.py:test_socket_that_is_found_twice_is_one
            if self._noted.get(path) != (info.st_dev, info.st_ino):
                self.handle_plugin_registration(path)
                self._noted[path] = info.st_dev, info.st_ino
        else:
            klog.v(5).info_s("Ignoring non socket file", path=name)

    def handle_plugin_registration(self, socket_path: str) -> None:
        """Add the plugin to the desired state. A socket that is already there may be a new one at the same path."""
        klog.v(2).info_s("Adding socket path or updating timestamp to desired state cache", path=socket_path)
        self._desired_state_of_world.add_or_update_plugin(socket_path)

    def handle_delete_event(self, path: str) -> None:
        """Handle the removal of a path and of everything below it."""
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
        """Treat all existing sockets as new, and missing ones as removed.

        DIVERGES (safer): when the kernel has dropped inotify events, the kubelet scans all sockets again.
        Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, (*Watcher).Start: the Go kubelet only logs the
        loss.
        Why: plugins would stay unknown, or registered without a socket.
        Test: plugin_watcher_test.py:test_lost_events_are_made_up_for
        """
        klog.error_s(None, "FsWatcher received error", path=self.path)
        self._noted.clear()
        self._look_at_all()

    def _look_at_all(self) -> None:
        """Find the sockets that appeared or disappeared without an event."""
        self._init()
        self._watch_above()
        self.traverse_plugin_dir(self.path)
        # This comes after the scan, because each later removal causes an event.
        for plugin in self._desired_state_of_world.get_plugins_to_register():
            if _is_gone(plugin.socket_path):
                self.handle_delete_event(plugin.socket_path)


def _is_gone(path: str) -> bool:
    """Report whether the path is gone.

    Return False if that is unknown, because the plugin would be deregistered otherwise.
    """
    try:
        return not filesystem.exists(path)
    except OSError as err:
        _log_inaccessible(err)
        return False


def _log_inaccessible(err: OSError) -> None:
    klog.error_s(err, "Error accessing path", path=err.filename)


@dataclass(frozen=True, slots=True)
class _WatchCallback:
    """Pass the events of a directory to the watcher."""

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
        """Do nothing, because the watch of the parent directory reports the removal."""

    def on_queue_overflow(self) -> None:
        if self.directory == self.watcher.path:
            with self.watcher._lock, self.watcher._trying(self.directory):
                self.watcher.handle_lost_events()
