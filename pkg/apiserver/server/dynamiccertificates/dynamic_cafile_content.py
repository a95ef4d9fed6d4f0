"""Reload the certificate authorities of clients when their file changes.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates/dynamic_cafile_content.go
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from pkg import golang, klog
from pkg.apiserver.server.dynamiccertificates.follow import follow
from pkg.client_go.util import cert as certutil
from pkg.golang import x509


@dataclass(frozen=True, slots=True)
class _CABundleAndVerifier:
    ca_bundle: bytes
    verify_options: x509.VerifyOptions


class DynamicFileCAContent:
    """Hold the last valid contents of a file.

    One thread follows the file; any thread may read the contents.
    """

    def __init__(self, purpose: str, filename: str) -> None:
        """Load the file; raise OSError or ValueError, naming the file, if it holds no certificate."""
        if not filename:
            raise ValueError("missing filename for ca bundle")
        self.name = f"{purpose}::{filename}"
        self._filename = filename
        self._lock = threading.Lock()  # The lock guards _current.
        self._current = self._read()

    def current_ca_bundle_content(self) -> bytes:
        with self._lock:
            return self._current.ca_bundle

    def verify_options(self) -> x509.VerifyOptions:
        with self._lock:
            return self._current.verify_options

    def load_ca_bundle(self) -> None:
        """Read the file.

        Raise OSError or ValueError, naming the file, and keep the previous contents.
        """
        if Path(self._filename).read_bytes() == self.current_ca_bundle_content():
            return
        new = self._read()
        with self._lock:
            self._current = new
        klog.v(2).info_s("Loaded a new CA Bundle and Verifier", name=self.name)

    def run(self, ctx: golang.Context) -> None:
        """Follow the file until ctx ends."""
        klog.info_s("Starting controller", name=self.name)
        follow(ctx, (self._filename,), self._load_and_log, "CA")
        klog.info_s("Shutting down controller", name=self.name)

    def _read(self) -> _CABundleAndVerifier:
        ca_bundle = Path(self._filename).read_bytes()
        if not ca_bundle:
            raise ValueError(f'missing content for CA bundle "{self.name}"')
        try:
            return _CABundleAndVerifier(ca_bundle, x509.VerifyOptions(certutil.parse_certs_pem(ca_bundle)))
        except ValueError as err:
            raise ValueError(f'error loading CA bundle for "{self.name}": {err}') from err

    def _load_and_log(self) -> None:
        try:
            self.load_ca_bundle()
        except (OSError, ValueError) as err:
            klog.error_s(err, "Failed to load the CA bundle, keeping the previous one", name=self.name)
