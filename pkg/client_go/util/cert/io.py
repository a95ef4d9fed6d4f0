"""Read and write certificate files.

Go: k8s.io/client-go/util/cert/io.go
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pkg.client_go.util.cert import pem
from pkg.util import atomicfile, filesystem

if TYPE_CHECKING:
    from cryptography import x509


def can_read_cert_and_key(cert_path: str, key_path: str) -> bool:
    """Report whether both files are readable; raise ValueError that names the missing file if only one is."""
    cert_readable, key_readable = os.access(cert_path, os.R_OK), os.access(key_path, os.R_OK)
    if cert_readable != key_readable:
        missing = key_path if cert_readable else cert_path
        raise ValueError(f"error reading {missing}, certificate and key must be supplied as a pair")
    return cert_readable


def write_cert(cert_path: str, data: bytes) -> None:
    """Write PEM data to a world-readable file (0644), and create missing directories (0755). Raise OSError."""
    path = Path(cert_path)
    filesystem.mkdir_all(path.parent, 0o755)
    atomicfile.write(path, data, 0o644)


def certs_from_file(file: str) -> list[x509.Certificate]:
    """Return the certificates in the file.

    Raise OSError if the file cannot be read, and ValueError, naming the file, if it holds no certificate.
    """
    data = Path(file).read_bytes()
    try:
        return pem.parse_certs_pem(data)
    except ValueError as err:
        raise ValueError(f"error reading {file}: {err}") from err
