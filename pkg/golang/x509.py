"""Whether a certificate leads to an authority that is trusted.

Go: crypto/x509/verify.go

Chains are built and checked by the `cryptography` library: signatures, validity, basic constraints, path lengths and
name constraints.

DIVERGES (platform): authorities with Ed25519 keys or with RSA keys below 2048 bits are refused, and so are certificates
of version 1, as `openssl x509 -req` makes them without extensions.
Go: crypto/x509/verify.go, (*Certificate).Verify: all of these are taken.
Why: the `cryptography` library, which checks the chains, refuses them.
Test: x509_test.py:test_what_the_library_refuses

The library sees only what an authority has signed. It begins with the client's certificate, and before it finds that no
authority is behind it, it tries a hundred signatures with keys that the client has chosen, and compares a million names
with constraints of the client's. That takes seconds, in which no other thread runs Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.x509 import verification


class CertificateError(Exception):
    """A certificate that leads nowhere, or may not be used for this."""


def decoding_errors() -> tuple[type[Exception], ...]:
    """What the library raises for what it cannot read, late: it decodes parts of a certificate when asked for them."""
    from cryptography import exceptions, x509

    return (
        ValueError,
        # For a name whose value is no text.
        TypeError,
        # For a TLS feature that the library does not know.
        KeyError,
        exceptions.UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    )


class VerifyOptions:
    """Authorities that certificates of clients are judged by. Thread-safe."""

    def __init__(self, roots: Sequence[x509.Certificate]) -> None:
        """Raises ValueError if there are none."""
        from cryptography.x509 import verification

        self._roots = list(roots)
        self._policy = _client_policy(verification.Store(self._roots))

    def verify(self, cert: x509.Certificate, intermediates: Sequence[x509.Certificate] = ()) -> list[x509.Certificate]:
        """The chain from the certificate to a root, as of now. Raises CertificateError."""
        from cryptography.x509 import verification

        authorities = self._authorities(intermediates)
        if cert not in self._roots and not any(_is_signed_by(cert, each) for each in authorities):
            raise CertificateError("x509: certificate signed by unknown authority")
        try:
            return self._policy.build_client_verifier().verify(cert, authorities[len(self._roots) :]).chain
        except (verification.VerificationError, ValueError) as err:
            raise CertificateError(f"x509: {err}") from err

    def _authorities(self, intermediates: Sequence[x509.Certificate]) -> list[x509.Certificate]:
        """The roots, and behind them those intermediates that lead to one, by the signatures alone."""
        found, left = list(self._roots), list(intermediates)
        for issuer in found:  # and those that are found meanwhile
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
    """The library's own constraints on extensions are those for names and servers on the web.

    As in Go a client's certificate needs no alternative name, and an authority's nothing but its basic constraints; if
    it says what its key is for, that must be signing certificates.
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
