"""Describe the TLS configuration of a connection.

Go: k8s.io/client-go/transport/config.go
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TLSConfig:
    """Hold the TLS settings.

    PEM data takes precedence over the file for the same setting. Files are read again when they change.
    """

    insecure: bool = False
    """The client does not check the server's certificate."""
    server_name: str = ""
    """The server's certificate must be for this name, if it is set, instead of the URL's host."""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = field(default=b"", repr=False)
    ca_data: bytes = b""
