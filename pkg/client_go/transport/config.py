"""What a connection with TLS is made of.

Go: k8s.io/client-go/transport/config.go
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TLSConfig:
    """Data (PEM) wins over the file of the same thing. Files are read again when they change."""

    insecure: bool = False
    """Believe any server: its certificate is not checked."""
    server_name: str = ""
    """The name that the server's certificate must have, if it is not that of the URL."""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = field(default=b"", repr=False)
    ca_data: bytes = b""
