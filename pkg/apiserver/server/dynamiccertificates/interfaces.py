"""Define what provides the certificate authorities of clients.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates/interfaces.go
"""

from __future__ import annotations

from typing import Protocol

from pkg.golang import x509


class CAContentProvider(Protocol):
    """Define what provides certificate authorities.

    All methods are thread-safe.
    """

    name: str

    def current_ca_bundle_content(self) -> bytes:
        """Return the certificates as PEM data, or empty data if there are none."""
        ...

    def verify_options(self) -> x509.VerifyOptions | None:
        """Return how to verify the certificates of clients, or None to trust none."""
        ...


class NoCAContent:
    """Trust no authority: a union without members.

    Go: union_content.go, NewUnionCAContentProvider
    """

    name = ""

    def current_ca_bundle_content(self) -> bytes:
        return b""

    def verify_options(self) -> None:
        return None
