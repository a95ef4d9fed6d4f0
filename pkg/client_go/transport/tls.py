"""Build SSL contexts that verify the server and present the client certificate.

Go: k8s.io/client-go/transport/transport.go, ca_rotation.go, cert_rotation.go
"""

from __future__ import annotations

import datetime
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pkg import klog
from pkg.client_go.transport.config import TLSConfig
from pkg.client_go.util.keyutil import pem
from pkg.golang import x509 as golangx509

# A `_Stamp` holds the time, size and inode of each file when it was read.
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ClientCertificate(Protocol):
    """Define a certificate with its key.

    A renewed certificate is a different object that does not equal the old one.
    """

    @property
    def cert_pem(self) -> bytes:
        """Return the certificate with its chain."""
        ...

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make the context present this certificate; raise OSError or ValueError if it cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Hold a certificate, with its chain, and its key as PEM data."""

    cert_pem: bytes
    key_pem: bytes = field(repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make the context present this certificate.

        The ssl module reads only files, so the pair goes through an anonymous file in memory that never reaches a disk.
        """
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.cert_pem + b"\n" + self.key_pem)
            file.flush()
            try:
                # Without a password OpenSSL would prompt for it on the terminal, and wait.
                context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
            except ssl.SSLError as err:
                raise ValueError(f"cannot use the client certificate with its key: {err}") from err


# A `_Source` holds the files and the certificate from which a context was made.
_Source = tuple[_Stamp, ClientCertificate | None]


class TLSContexts:
    """Build a new SSL context when a file or the certificate has changed, and return the same one until then.

    All methods are thread-safe. Connection pools compare the contexts by identity.
    """

    def __init__(
        self,
        config: TLSConfig,
        get_cert: Callable[[], ClientCertificate | None] | None = None,
    ) -> None:
        """Raise ValueError for a config that sets both certificate authorities and the insecure flag."""
        if config.insecure and (config.ca_file or config.ca_data):
            raise ValueError("specifying a root certificates file with the insecure flag is not allowed")
        self._config = config
        self._get_cert = get_cert
        self._lock = threading.Lock()  # The lock guards the fields below.
        self._context: ssl.SSLContext | None = None
        self._shown: ClientCertificate | None = None
        # `_source` is the source of the current context. `_refused` is the last source that made no usable context.
        self._source: _Source | None = None
        self._refused: _Source | None = None

    def current(self) -> ssl.SSLContext:
        """Return the current context.

        While changed files cannot be used, the context of the old files stays. Raise OSError or ValueError, naming the
        file or field, if there never was a usable context.
        """
        certificate = self._get_cert() if self._get_cert is not None else None
        with self._lock:
            source = (self._look(), certificate)
            if self._context is not None and source == self._source:
                return self._context
            try:
                context = self._build(certificate)
            except (OSError, ValueError) as err:
                if self._context is None:
                    raise
                if source != self._refused:  # Every request calls this function, so each failure is logged only once.
                    klog.error_s(err, "Failed to load changed TLS files, continuing with the old ones")
                    self._refused = source
                return self._context
            self._context, self._source = context, source
            return context

    def describe_certificate(self) -> str:
        """Return the owner and the expiry of our certificate, or "" without one."""
        with self._lock:
            return "" if self._shown is None else describe(self._shown.cert_pem)

    def _look(self) -> _Stamp:
        config = self._config
        paths = [
            "" if config.ca_data else config.ca_file,
            "" if config.cert_data else config.cert_file,
            "" if config.key_data else config.key_file,
        ]
        return tuple(_stat(path) for path in paths)

    def _build(self, certificate: ClientCertificate | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if self._config.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            # As in Go, a trusted certificate need not be a root, and a certificate is valid only for the names in its
            # extension. An authority that checks only these names may let anybody choose the common name.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.hostname_checks_common_name = False
            self._load_ca(context)
        shown = certificate or self._own_certificate()
        if shown is not None:
            shown.load_into(context)
        self._shown = shown
        return context

    def _load_ca(self, context: ssl.SSLContext) -> None:
        data, source = self._config.ca_data, "certificate-authority-data"
        if not data and self._config.ca_file:
            source = self._config.ca_file
            try:
                data = Path(source).read_bytes()
            except OSError as err:
                raise OSError(err.errno, f"unable to read certificate-authority: {err.strerror}", source) from err
        if not data:
            context.load_default_certs()
            return
        if not _load_certificates(context, data):
            raise ValueError(f"unable to load root certificates from {source}: unable to parse bytes as PEM block")

    def _own_certificate(self) -> KeyPair | None:
        """Return the configured certificate; raise OSError or ValueError that names what is missing."""
        config = self._config
        if not (config.cert_data or config.cert_file):
            return None
        cert = config.cert_data or _read(config.cert_file, "client-certificate")
        if not (config.key_data or config.key_file):
            raise ValueError("client-key-data or client-key must be specified with a client certificate")
        key = config.key_data or _read(config.key_file, "client-key")
        return KeyPair(cert, key)


def describe(cert_pem: bytes) -> str:
    """Describe a client certificate in words, for messages."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(cert_pem)
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except golangx509.decoding_errors():
        return "a client certificate that cannot be read"
    end = certificate.not_valid_after_utc
    ended = "expired on" if end < datetime.datetime.now(datetime.UTC) else "is valid until"
    whose = f" of {names[0].value!r}" if names else ""
    return f"the client certificate{whose}, which {ended} {end:%Y-%m-%dT%H:%M:%SZ}"


def _load_certificates(context: ssl.SSLContext, data: bytes) -> bool:
    """Trust all readable certificates in the PEM data, and report whether there is one.

    Go: rootCertPool, x509.CertPool.AppendCertsFromPEM
    """
    loaded = False
    for block in pem.blocks(data):
        if block.type != "CERTIFICATE" or block.has_headers:
            continue
        try:
            context.load_verify_locations(cadata=block.data)
            loaded = True
        except (ssl.SSLError, ValueError):
            klog.v(4).info_s("Skipping a certificate that cannot be read in a bundle of certificate authorities")
    return loaded


def _read(path: str, what: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as err:
        raise OSError(err.errno, f"unable to read {what}: {err.strerror}", path) from err


def _stat(path: str) -> tuple[int, int, int] | None:
    if not path:
        return None
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
