"""Verify that a certificate leads to a trusted authority.

Go: crypto/x509/verify.go

The `cryptography` library builds and checks the chains: signatures, validity, basic constraints, path lengths and name
constraints.

DIVERGES (platform): this kubelet refuses authorities with Ed25519 keys or with RSA keys below 2048 bits, and
certificates of version 1, which `openssl x509 -req` creates when it is given no extensions.
Go: crypto/x509/verify.go, (*Certificate).Verify: the Go kubelet accepts all of these.
Why: the `cryptography` library, which checks the chains, refuses them.
Test: x509_test.py:test_what_the_library_refuses

This module passes only certificates that an authority has signed to the library. The library starts from the client's
certificate. Before it finds that no authority stands behind that certificate, it tries a hundred signatures with keys
that the client has chosen, and compares a million names with constraints that the client has chosen. That takes
seconds, during which no other thread runs Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509 import verification


class CertificateError(Exception):
    """Signal that a certificate leads to no trusted authority, or may not be used for client authentication."""


def decoding_errors() -> tuple[type[Exception], ...]:
    """Return the errors that the library raises for certificates that it cannot decode.

    It decodes the parts of a certificate only when they are read.
    """
    from cryptography import exceptions, x509

    return (
        ValueError,
        # The library raises this error if a name has a value that is not text.
        TypeError,
        # The library raises this error for a TLS feature that it does not know.
        KeyError,
        exceptions.UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    )


class VerifyOptions:
    """Hold the authorities that verify the certificates of clients. All methods are thread-safe."""

    def __init__(self, roots: Sequence[x509.Certificate]) -> None:
        """Raise ValueError if there are no authorities."""
        from cryptography.x509 import verification

        self._roots = list(roots)
        self._policy = _client_policy(verification.Store(self._roots))

    def verify(self, cert: x509.Certificate, intermediates: Sequence[x509.Certificate] = ()) -> list[x509.Certificate]:
        """Return the chain from the certificate to a root, as of now. Raise CertificateError if there is none."""
        from cryptography.x509 import verification

        authorities = self._authorities(intermediates)
        if cert not in self._roots and not any(_is_signed_by(cert, each) for each in authorities):
            raise CertificateError("x509: certificate signed by unknown authority")
        try:
            return self._policy.build_client_verifier().verify(cert, authorities[len(self._roots) :]).chain
        except (verification.VerificationError, ValueError) as err:
            raise CertificateError(f"x509: {err}") from err

    def _authorities(self, intermediates: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """Return the roots, then those intermediates that lead to a root according to their signatures alone."""
        found, left = list(self._roots), list(intermediates)
        for issuer in found:  # The loop also visits the issuers that it appends.
            signed = [each for each in left if _is_signed_by(each, issuer) and _is_authority(each)]
            left = [each for each in left if each not in signed]
            found += signed
        return found


def _is_signed_by(cert: x509.Certificate, issuer: x509.Certificate) -> bool:
    from cryptography import exceptions

    errors: tuple[type[Exception], ...] = (exceptions.InvalidSignature, *decoding_errors())
    try:
        cert.verify_directly_issued_by(issuer)
    except errors:
        return False
    return True


def _is_authority(cert: x509.Certificate) -> bool:
    from cryptography import x509

    errors: tuple[type[Exception], ...] = (x509.ExtensionNotFound, *decoding_errors())
    try:
        return cert.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except errors:
        return False


def _client_policy(store: verification.Store) -> verification.PolicyBuilder:
    """Return the policy that checks the certificates of clients.

    The library's own rules for extensions suit names and servers on the web. As in Go, a client's certificate needs no
    alternative name, and an authority's certificate needs only its basic constraints. If that certificate has a key
    usage, the key usage must include signing certificates.
    """
    from cryptography import x509
    from cryptography.x509 import verification

    agnostic = verification.Criticality.AGNOSTIC
    permissive = verification.ExtensionPolicy.permit_all().may_be_present(
        x509.ExtendedKeyUsage, agnostic, _check_client_usage
    )
    authorities = permissive.require_present(x509.BasicConstraints, agnostic, None).may_be_present(
        x509.KeyUsage, agnostic, _check_may_sign
    )
    return verification.PolicyBuilder().store(store).extension_policies(ca_policy=authorities, ee_policy=permissive)


def _check_client_usage(
    policy: verification.Policy, cert: x509.Certificate, usage: x509.ExtendedKeyUsage | None
) -> None:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    allowed = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    if usage is not None and allowed.isdisjoint(usage):
        raise ValueError("certificate specifies an incompatible key usage")


def _check_may_sign(policy: verification.Policy, cert: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("parent certificate cannot sign this kind of certificate")
