"""Notices that files change, whoever writes or replaces them.

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

# Seconds after which the files are read again even if nothing was seen to happen to them.
_CHECK_PERIOD = 60.0

# A writer that is not done yet is waited for; links that are swapped come as moves.
_MASK = inotify_c.Mask(
    inotify_c.InotifyConstants.IN_CREATE
    | inotify_c.InotifyConstants.IN_CLOSE_WRITE
    | inotify_c.InotifyConstants.IN_MOVED_TO
    | inotify_c.InotifyConstants.IN_DELETE_SELF
    | inotify_c.InotifyConstants.IN_MOVE_SELF
)


def follow(ctx: golang.Context, files: Sequence[str], load: Callable[[], None], what: str) -> None:
    """Call `load` whenever something may have happened to the files, until ctx ends.

    Their directories are watched. Go watches the files themselves, and has to start again whenever another is renamed
    onto one of them.
    """
    while ctx.err() is None:
        try:
            _watch(ctx, files, load)
        except Exception as err:  # whatever fails, inotify or its thread, new files must come into use some time
            klog.error_s(err, f"Failed to watch {what} file, will retry later")
            _load(load)
            ctx.wait(_CHECK_PERIOD)


def _load(load: Callable[[], None]) -> None:
    with contain("Failed to load changed files, the last ones stay in use"):
        load()


def _watch(ctx: golang.Context, files: Sequence[str], load: Callable[[], None]) -> None:
    """Returns when ctx ends. Raises OSError if inotify fails or a directory is gone."""
    changes: golang.Channel[None] = golang.Channel(1)
    lost: golang.Channel[None] = golang.Channel(1)
    watching = inotify.start("certificate-files-inotify")
    try:
        for directory in {str(Path(file).absolute().parent) for file in files}:
            callback = _WatchCallback(changes, lost)
            watching.add_callback(os.fsencode(directory), _MASK, callback, inotify_c.CallbackId(id(callback)))
        while True:
            # What happened before the watch was there has no event.
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
    """Receives what happens in a directory, on the watch's own thread."""

    def __init__(self, changes: golang.Channel[None], lost: golang.Channel[None]) -> None:
        self._changes = changes
        self._lost = lost

    def on_event(self, event: inotify_c.InotifyEvent) -> None:
        (self._lost if event.is_delete_self or event.is_move_self else self._changes).try_send(None)

    def on_watch_deleted(self, wd: inotify_c.WatchDescriptor) -> None:
        self._lost.try_send(None)

    def on_queue_overflow(self) -> None:
        self._changes.try_send(None)
