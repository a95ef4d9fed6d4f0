"""Notes each socket below a directory as a plugin to register, as long as it is there.

Go: pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go, plugin_watcher_others.go
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from watchdog.observers import inotify_c

from kubelet import util
from kubelet.pluginmanager import cache
from pkg import golang, klog
from pkg.apimachinery.util.runtime.runtime import contain
from pkg.util import filesystem, filetree, inotify

# DIVERGES: Go takes no notice of a socket that is moved away.
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE
    | inotify_c.InotifyConstants.IN_MOVED_FROM
)


class Watcher:
    """Follows one directory and all below it, with inotify. From start on all happens on the thread of inotify."""

    def __init__(self, sock_dir: str, desired_state_of_world: cache.DesiredStateOfWorld) -> None:
        self.path = sock_dir
        self._desired_state_of_world = desired_state_of_world
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
        self._init()
        if self._fs_watcher is None:
            self._fs_watcher = inotify.Inotify("plugin-watcher")
        self._watch(self.path)
        try:
            self.traverse_plugin_dir(self.path)
        except OSError as err:
            klog.error_s(err, "Failed to traverse plugin socket path", path=self.path)
        self._fs_watcher.start()
        golang.after_func(ctx, self._fs_watcher.stop)

    def wait(self) -> None:
        """Return when the thread has ended."""
        if self._fs_watcher is not None and self._fs_watcher.ident is not None:
            self._fs_watcher.join()

    def _init(self) -> None:
        klog.v(4).info_s("Ensuring Plugin directory", path=self.path)
        try:
            filesystem.mkdir_all(self.path, 0o755)
        except OSError as err:
            raise OSError(err.errno, f"error (re-)creating root {self.path}: {err.strerror}") from err

    def traverse_plugin_dir(self, directory: str) -> None:
        """Watch the directory and all below, and note the sockets. Raises OSError when one cannot be watched."""
        self._watch(directory)
        for parent, entry in filetree.walk(directory, one_filesystem=False, on_error=_log_inaccessible):
            path = os.path.join(parent.path(), entry.name)
            if entry.is_dir(follow_symlinks=False):
                self._watch(path)
            else:
                self._note_found(path)

    def _watch(self, directory: str) -> None:
        assert self._fs_watcher is not None
        self._unwatch(directory)
        callback = _WatchCallback(self, directory)
        callback_id = inotify_c.CallbackId(id(callback))
        try:
            descriptor = self._fs_watcher.add_callback(os.fsencode(directory), _MASK, callback, callback_id)
        except OSError as err:
            raise OSError(err.errno, f"failed to watch {directory}, err: {err.strerror}") from err
        self._watches[directory] = descriptor, callback_id

    def _unwatch(self, directory: str) -> None:
        assert self._fs_watcher is not None
        watch = self._watches.pop(directory, None)
        if watch is not None:
            self._fs_watcher.remove_callbacks([watch])

    def _note_found(self, path: str) -> None:
        try:
            if util.is_unix_domain_socket(path):
                self.handle_create_event(path)
            else:
                klog.v(5).info_s("Ignoring file", path=path)
        except Exception as err:  # whatever it is, other sockets are looked at
            klog.error_s(err, "Error when handling create", event=path)

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
            # DIVERGES: Go registers a plugin twice whose socket is found in a new directory and has an event as well.
            if self._noted.get(path) != (info.st_dev, info.st_ino):
                self._noted[path] = info.st_dev, info.st_ino
                self.handle_plugin_registration(path)
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
        """Take what is there for new, and what is not for gone. DIVERGES: Go only logs that events were lost."""
        klog.error_s(None, "FsWatcher received error", path=self.path)
        self._noted.clear()
        for plugin in self._desired_state_of_world.get_plugins_to_register():
            if _is_gone(plugin.socket_path):
                self.handle_delete_event(plugin.socket_path)
        try:
            self.traverse_plugin_dir(self.path)
        except OSError as err:
            klog.error_s(err, "Failed to traverse plugin socket path", path=self.path)


def _is_gone(path: str) -> bool:
    """Not if that cannot be told: the plugin would be deregistered, and its driver used no more."""
    try:
        return not Path(path).exists()
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
        try:
            if event.is_delete or event.is_moved_from:
                self.watcher.handle_delete_event(path)
            else:
                self.watcher.handle_create_event(path)
        except Exception as err:  # whatever it is, the thread goes on with other events
            klog.error_s(err, "Error when handling event", event=path)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        """The directory above, if it is watched, tells of that."""

    def on_queue_overflow(self) -> None:
        if self.directory == self.watcher.path:
            with contain("Failed to look at all plugin sockets", golang.background(), path=self.directory):
                self.watcher.handle_lost_events()
