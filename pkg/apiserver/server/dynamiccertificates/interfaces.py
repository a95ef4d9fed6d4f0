"""Where the authorities of clients come from.

Go: k8s.io/apiserver/pkg/server/dynamiccertificates/interfaces.go
"""

from __future__ import annotations

from typing import Protocol

from pkg.golang import x509


class CAContentProvider(Protocol):
    """All methods from any thread."""

    name: str

    def current_ca_bundle_content(self) -> bytes:
        """The certificates as PEM data; empty if there are none."""
        ...

    def verify_options(self) -> x509.VerifyOptions | None:
        """What certificates of clients are judged by; None if none is to be trusted."""
        ...


class NoCAContent:
    """Nobody is trusted: a union without members. Go: union_content.go, NewUnionCAContentProvider"""

    name = ""

    def current_ca_bundle_content(self) -> bytes:
        return b""

    def verify_options(self) -> None:
        return None
