"""Make, read and write private keys.

Go: k8s.io/client-go/util/keyutil/key.go
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pkg.client_go.util.keyutil import pem
from pkg.util import atomicfile, filesystem

# Functions import the cryptography library when they need it, so a kubelet without certificates does not load it.
if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import types as keytypes

    PrivateKey: TypeAlias = keytypes.CertificateIssuerPrivateKeyTypes
else:
    PrivateKey: TypeAlias = object

EC_PRIVATE_KEY_BLOCK_TYPE = "EC PRIVATE KEY"
RSA_PRIVATE_KEY_BLOCK_TYPE = "RSA PRIVATE KEY"
PRIVATE_KEY_BLOCK_TYPE = "PRIVATE KEY"

_KEY_BLOCK_TYPES = (EC_PRIVATE_KEY_BLOCK_TYPE, RSA_PRIVATE_KEY_BLOCK_TYPE, PRIVATE_KEY_BLOCK_TYPE)


def make_elliptic_private_key_pem() -> bytes:
    """Return a new key on the curve P-256."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return marshal_private_key_to_pem(ec.generate_private_key(ec.SECP256R1()))


def write_key(key_path: str, data: bytes) -> None:
    """Write a PEM key to a file that only its owner may read (0600), and create directories as needed.

    DIVERGES (safer): writing a key replaces the file by a complete one, which only its owner may read.
    Go: k8s.io/client-go/util/keyutil/key.go, WriteKey: the Go kubelet overwrites the file in place, and keeps its mode.
    Why: a crash during the write must not lose the key of a request that may still be approved.
    Test: key_test.py:test_write_key_takes_the_file_from_others
    """
    path = Path(key_path)
    filesystem.mkdir_all(path.parent, 0o755)
    atomicfile.write(path, data)


def load_or_generate_key_file(key_path: str) -> bytes:
    """Return the PEM key in the file, or write a new one there and return it.

    Raise ValueError, naming the file, if the file holds no key, and OSError if it cannot be read or written.
    """
    path = Path(key_path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        data = make_elliptic_private_key_pem()
        write_key(key_path, data)
        return data
    try:
        parse_private_key_pem(data)
    except ValueError as err:
        raise ValueError(f"error loading key from {key_path}: {err}") from err
    return data


def marshal_private_key_to_pem(private_key: PrivateKey) -> bytes:
    """Return a PEM block in the form of the key's kind; raise ValueError if it is neither RSA nor ECDSA."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if not isinstance(private_key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError(f"private key is not a recognized type: {type(private_key).__name__}")
    return private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def private_key_from_file(file: str) -> PrivateKey:
    """Return the key in the file.

    Raise OSError if the file cannot be read, and ValueError, naming the file, if it holds no key.
    """
    data = Path(file).read_bytes()
    try:
        return parse_private_key_pem(data)
    except ValueError as err:
        raise ValueError(f"error reading private key file {file}: {err}") from err


def parse_private_key_pem(key_data: bytes) -> PrivateKey:
    """Return the first unencrypted key among the PEM blocks, in SEC 1, PKCS #1 or PKCS #8 form.

    Other blocks are skipped, such as "EC PARAMETERS" or a certificate in the same file. Raise ValueError if there is no
    key.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    for block in pem.blocks(key_data):
        if block.type not in _KEY_BLOCK_TYPES or block.has_headers:
            continue
        try:
            key = serialization.load_der_private_key(block.data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
            return key
    raise ValueError("data does not contain a valid RSA or ECDSA private key")
