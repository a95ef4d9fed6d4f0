"""Load a certificate with its key.

Go: crypto/tls (Certificate, X509KeyPair)
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.golang import x509 as golangx509

if TYPE_CHECKING:
    import datetime

    from cryptography import x509


@dataclass(slots=True, frozen=True, eq=False)
class Certificate:
    """Hold a certificate, its intermediate certificates, and the key.

    A certificate equals only itself, as pointers do in Go.
    """

    chain: tuple[x509.Certificate, ...]
    private_key: keyutil.PrivateKey
    cert_pem: bytes
    key_pem: bytes
    cert_file: str = ""
    """`cert_file` is the file from which the pair was read, or "" if there is none.

    By now the file may hold another pair.
    """
    key_file: str = ""

    @property
    def leaf(self) -> x509.Certificate:
        """Return the certificate itself, without the intermediate certificates."""
        return self.chain[0]

    @property
    def not_before(self) -> datetime.datetime:
        return self.leaf.not_valid_before_utc

    @property
    def not_after(self) -> datetime.datetime:
        return self.leaf.not_valid_after_utc

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make the context present this pair, even if its files have changed.

        Raise OSError or ValueError on failure.
        """
        # The import is lazy, so that programs which only serve with a certificate do not load the client.
        from pkg.client_go import transport

        transport.KeyPair(self.cert_pem, self.key_pem).load_into(context)


def x509_key_pair(cert_pem: bytes, key_pem: bytes, cert_file: str = "", key_file: str = "") -> Certificate:
    """Return the pair in the PEM data; raise ValueError if one part is missing or the parts do not match."""
    from cryptography.hazmat.primitives import serialization

    chain = tuple(certutil.parse_certs_pem(cert_pem))
    private_key = keyutil.parse_private_key_pem(key_pem)
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    try:
        public_key = chain[0].public_key()
    except golangx509.decoding_errors() as err:
        raise ValueError(f"cannot read the certificate's public key: {err}") from err
    if public_key.public_bytes(*form) != private_key.public_key().public_bytes(*form):
        raise ValueError("private key does not match public key")
    return Certificate(chain, private_key, cert_pem, key_pem, cert_file, key_file)


def load_x509_key_pair(cert_file: str, key_file: str) -> Certificate:
    """Return the pair in the files, which may be the same file; raise OSError or ValueError that names the file."""
    cert_pem = Path(cert_file).read_bytes()
    key_pem = cert_pem if key_file == cert_file else Path(key_file).read_bytes()
    try:
        return x509_key_pair(cert_pem, key_pem, cert_file, key_file)
    except ValueError as err:
        raise ValueError(f'could not convert data from "{cert_file}", "{key_file}" into cert/key pair: {err}') from err
