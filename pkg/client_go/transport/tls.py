"""What the server must prove and what we show it.

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

# What files looked like when they were read: time, size and inode.
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ClientCertificate(Protocol):
    """A certificate and its key. Another one is another object that does not equal this."""

    @property
    def cert_pem(self) -> bytes:
        """The certificate, with its chain."""
        ...

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make the context show it. Raises OSError or ValueError if it cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate, with its chain, and key as PEM."""

    cert_pem: bytes
    key_pem: bytes = field(repr=False)

    def load_into(self, context: ssl.SSLContext) -> None:
        """The ssl module reads files only; this one is nameless and never on a disk."""
        descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
        with os.fdopen(descriptor, "wb") as file:
            file.write(self.cert_pem + b"\n" + self.key_pem)
            file.flush()
            try:
                # Without a password OpenSSL would ask for it on the terminal, and wait.
                context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
            except ssl.SSLError as err:
                raise ValueError(f"cannot use the client certificate with its key: {err}") from err


# The files and the certificate that a context is made of.
_Source = tuple[_Stamp, ClientCertificate | None]


class TLSContexts:
    """Makes a new SSL context when a file or the certificate has changed; the same one until then.

    Safe from any thread. Whoever holds connections compares the contexts by identity.
    """

    def __init__(
        self,
        config: TLSConfig,
        get_cert: Callable[[], ClientCertificate | None] | None = None,
    ) -> None:
        """Raises ValueError for a config that both trusts authorities and believes any server."""
        if config.insecure and (config.ca_file or config.ca_data):
            raise ValueError("specifying a root certificates file with the insecure flag is not allowed")
        self._config = config
        self._get_cert = get_cert
        self._lock = threading.Lock()  # guards the rest
        self._context: ssl.SSLContext | None = None
        self._shown: ClientCertificate | None = None
        # What the context was made of, and what was last found to make none.
        self._source: _Source | None = None
        self._refused: _Source | None = None

    def current(self) -> ssl.SSLContext:
        """Raises OSError or ValueError, naming file or field, if there is none that could be used.

        While changed files cannot be used, the context made of the old ones stays.
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
                if source != self._refused:  # this is called for every request
                    klog.error_s(err, "Unable to use changed TLS files, going on with the old ones")
                    self._refused = source
                return self._context
            self._context, self._source = context, source
            return context

    def describe_certificate(self) -> str:
        """Whose certificate we show, and until when it is valid; "" if we show none."""
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
            # As in Go, a trusted certificate is trusted although it is no root, and is only for the names of its
            # extension: an authority that checks those may let anybody choose the common name.
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
        """Raises OSError or ValueError that names what is missing."""
        config = self._config
        if not (config.cert_data or config.cert_file):
            return None
        cert = config.cert_data or _read(config.cert_file, "client-certificate")
        if not (config.key_data or config.key_file):
            raise ValueError("client-key-data or client-key must be specified with a client certificate")
        key = config.key_data or _read(config.key_file, "client-key")
        return KeyPair(cert, key)


def describe(cert_pem: bytes) -> str:
    """A client certificate in words, for messages."""
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(cert_pem)
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except golangx509.decoding_errors():
        return "a client certificate that cannot be read"
    end = certificate.not_valid_after_utc
    ended = "ended" if end < datetime.datetime.now(datetime.UTC) else "is valid until"
    whose = f" of {names[0].value!r}" if names else ""
    return f"the client certificate{whose}, which {ended} {end:%Y-%m-%dT%H:%M:%SZ}"


def _load_certificates(context: ssl.SSLContext, data: bytes) -> bool:
    """Trust all certificates in the PEM data that can be read; whether there is one.

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
