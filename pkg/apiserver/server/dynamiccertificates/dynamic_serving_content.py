"""A certificate and key that are read again when their files change.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates/dynamic_serving_content.go
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from watchdog.observers import inotify_c

from pkg import golang, klog
from pkg.client_go.util import certificate

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


class DynamicCertKeyPairContent:
    """The last valid pair of two files. One thread follows them, any may ask.

    While one file is new and the other still old they are no pair, and the last one stays.
    """

    def __init__(self, purpose: str, cert_file: str, key_file: str) -> None:
        """Raises OSError or ValueError, naming the files, if they hold no pair."""
        if not cert_file or not key_file:
            raise ValueError("missing filename for serving cert")
        self.name = f"{purpose}::{cert_file}::{key_file}"
        self._cert_file = cert_file
        self._key_file = key_file
        self._lock = threading.Lock()  # guards _current
        self._current = certificate.load_x509_key_pair(cert_file, key_file)

    def current_cert_key_content(self) -> certificate.Certificate:
        with self._lock:
            return self._current

    def load_cert_key_pair(self) -> None:
        """Read the files. Raises OSError or ValueError, naming them; then the last pair stays."""
        new = certificate.load_x509_key_pair(self._cert_file, self._key_file)
        with self._lock:
            old = self._current
            if (old.cert_pem, old.key_pem) == (new.cert_pem, new.key_pem):
                return
            self._current = new
        klog.v(2).info_s("Loaded a new cert/key pair", name=self.name)

    def run(self, ctx: golang.Context) -> None:
        """Follow the files until ctx ends.

        DIVERGES: their directories are watched. Go watches the files themselves, and has to start again
        whenever another is renamed onto one of them.
        """
        klog.info_s("Starting controller", name=self.name)
        while ctx.err() is None:
            try:
                self._watch(ctx)
            except OSError as err:
                klog.error_s(err, "Failed to watch cert and key file, will retry later")
                self._load_and_log()
                ctx.wait(_CHECK_PERIOD)
        klog.info_s("Shutting down controller", name=self.name)

    def _watch(self, ctx: golang.Context) -> None:
        """Returns when ctx ends or a directory is gone. Raises OSError if inotify fails."""
        changes: golang.Channel[None] = golang.Channel(1)
        lost: golang.Channel[None] = golang.Channel(1)
        inotify = inotify_c.InotifyFD()
        inotify.name = "certificate-files-inotify"
        inotify.start()
        try:
            for directory in {str(Path(file).absolute().parent) for file in (self._cert_file, self._key_file)}:
                callback = _WatchCallback(changes, lost)
                inotify.add_callback(os.fsencode(directory), _MASK, callback, inotify_c.CallbackId(id(callback)))
            while True:
                # What happened before the watch was there has no event.
                self._load_and_log()
                selected = golang.select(ctx.done(), lost, changes, timeout=_CHECK_PERIOD)
                if selected.index in (0, 1):
                    break
        finally:
            inotify.stop()
            inotify.join()
        if ctx.err() is None:
            raise FileNotFoundError(f"directory of {self._cert_file} or {self._key_file} was moved or removed")

    def _load_and_log(self) -> None:
        try:
            self.load_cert_key_pair()
        except (OSError, ValueError) as err:
            klog.error_s(err, "Failed to load the serving certificate, the last one stays in use", name=self.name)


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
