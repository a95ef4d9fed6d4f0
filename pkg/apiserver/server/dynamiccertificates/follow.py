"""Notice that files change, in whatever way they are written or replaced.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates (watchCAFile, watchCertKeyFile)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from watchdog.observers import inotify_c

from pkg import golang, klog
from pkg.apimachinery.util.runtime import contain
from pkg.util import inotify

# `_CHECK_PERIOD` is the interval, in seconds, after which the files are read again even without an event.
_CHECK_PERIOD = 60.0

# An event follows when a writer closes its file. The replacement of a link causes a move event.
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_CLOSE_WRITE
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE_SELF
    | inotify_c.InotifyConstants.IN_MOVE_SELF
)


def follow(ctx: golang.Context, files: Sequence[str], load: Callable[[], None], what: str) -> None:
    """Call `load` whenever the files may have changed, until ctx ends.

    The function watches the directories. Go watches the files themselves, and must restart whenever another file is
    renamed onto one of them.
    """
    while ctx.err() is None:
        try:
            _watch(ctx, files, load)
        except Exception as err:
            # Whatever fails, such as inotify or the start of its thread, new files must take effect at some point.
            klog.error_s(err, f"Failed to watch {what} file, will retry later")
            _load(load)
            ctx.wait(_CHECK_PERIOD)


def _load(load: Callable[[], None]) -> None:
    with contain("Failed to load changed files, keeping the previous ones"):
        load()


def _watch(ctx: golang.Context, files: Sequence[str], load: Callable[[], None]) -> None:
    """Watch the directories until ctx ends; raise OSError if inotify fails or a directory is removed."""
    changes: golang.Channel[None] = golang.Channel(1)
    lost: golang.Channel[None] = golang.Channel(1)
    watching = inotify.start("certificate-files-inotify")
    try:
        for directory in {str(Path(file).absolute().parent) for file in files}:
            callback = _WatchCallback(changes, lost)
            watching.add_callback(os.fsencode(directory), _MASK, callback, inotify_c.CallbackId(id(callback)))
        while True:
            # Changes before the start of the watch cause no events.
            _load(load)
            selected = golang.select(ctx.done(), lost, changes, timeout=_CHECK_PERIOD)
            if selected.took(ctx.done()) or selected.took(lost):
                break
    finally:
        watching.stop()
        watching.join()
    if ctx.err() is None:
        raise FileNotFoundError(f"directory of {' or '.join(files)} was moved or removed")


class _WatchCallback:
    """Receive the events of a directory, in the watch's own thread."""

    def __init__(self, changes: golang.Channel[None], lost: golang.Channel[None]) -> None:
        self._changes = changes
        self._lost = lost

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        (self._lost if event.is_delete_self or event.is_move_self else self._changes).try_send(None)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        self._lost.try_send(None)

    def on_queue_overflow(self) -> None:
        self._changes.try_send(None)
