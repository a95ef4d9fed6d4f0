"""Reload a certificate and its key when their files change.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates/dynamic_serving_content.go
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pkg import golang, klog
from pkg.apiserver.server.dynamiccertificates.follow import follow
from pkg.client_go.util import certificate


class DynamicCertKeyPairContent:
    """Hold the last valid pair of two files.

    One thread follows the files; any thread may read the pair. While only one of the files is new, they are not a pair,
    and the previous one stays in use.
    """

    def __init__(self, purpose: str, cert_file: str, key_file: str) -> None:
        """Load the files; raise OSError or ValueError, naming them, if they are not a pair."""
        if not cert_file or not key_file:
            raise ValueError("missing filename for serving cert")
        self.name = f"{purpose}::{cert_file}::{key_file}"
        self._cert_file = cert_file
        self._key_file = key_file
        self._lock = threading.Lock()  # The lock guards _current.
        self._current = certificate.load_x509_key_pair(cert_file, key_file)
        self._listeners: list[Callable[[], object]] = []

    def add_listener(self, enqueue: Callable[[], object]) -> None:
        """Call enqueue after each change of the pair, in the thread that follows the files.

        Callers must add listeners before run.
        """
        self._listeners.append(enqueue)

    def current_cert_key_content(self) -> certificate.Certificate:
        with self._lock:
            return self._current

    def load_cert_key_pair(self) -> None:
        """Read the files.

        Raise OSError or ValueError, naming the files, and keep the previous pair.
        """
        new = certificate.load_x509_key_pair(self._cert_file, self._key_file)
        with self._lock:
            old = self._current
            if (old.cert_pem, old.key_pem) == (new.cert_pem, new.key_pem):
                return
            self._current = new
        klog.v(2).info_s("Loaded a new cert/key pair", name=self.name)
        for enqueue in self._listeners:
            enqueue()

    def run(self, ctx: golang.Context) -> None:
        """Follow the files until ctx ends."""
        klog.info_s("Starting controller", name=self.name)
        follow(ctx, (self._cert_file, self._key_file), self._load_and_log, "cert and key")
        klog.info_s("Shutting down controller", name=self.name)

    def _load_and_log(self) -> None:
        try:
            self.load_cert_key_pair()
        except (OSError, ValueError) as err:
            klog.error_s(err, "Failed to load the serving certificate, keeping the previous one", name=self.name)
