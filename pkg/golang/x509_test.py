"""Tests of whether a certificate leads to an authority."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from pkg.golang import x509 as golangx509
from pkg.golang.testing import ANY_USAGE, CLIENT_AUTH, HOUR, SERVER_AUTH, Issuer, key_usage, subject

JOE = subject("joe")
ROOT = Issuer()
MIDDLE = Issuer(subject("middle"), signed_by=ROOT)
NO_AUTHORITY = Issuer(subject("middle"), ca=False, signed_by=ROOT)
SIGNS = Issuer(subject("middle"), key_usage=key_usage(key_cert_sign=True), signed_by=ROOT)
DOES_NOT_SIGN = Issuer(subject("middle"), key_usage=key_usage(key_cert_sign=False), signed_by=ROOT)
EXPIRED_ROOT = Issuer(valid_for=-HOUR)
LAST = Issuer(subject("last"), signed_by=MIDDLE)
# Each may have signed the other, and both the certificate.
STRANGER = Issuer(subject("stranger"))
DOUBLE = Issuer(subject("stranger"), key=STRANGER.key, signed_by=STRANGER)


def with_critical_extension() -> x509.Certificate:
    """Nobody knows what it means."""
    unheard_of = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4.5"), b"\x05\x00")
    cert = ROOT.cert
    builder = x509.CertificateBuilder(ROOT.name, JOE, ROOT.key.public_key(), 7)
    builder = builder.not_valid_before(cert.not_valid_before_utc).not_valid_after(cert.not_valid_after_utc)
    return builder.add_extension(unheard_of, critical=True).sign(ROOT.key, hashes.SHA256())


@pytest.mark.parametrize(
    ("issuer", "roots", "intermediates", "length"),
    [
        pytest.param(ROOT, [ROOT], [], 2, id="signed by a root"),
        pytest.param(MIDDLE, [ROOT], [MIDDLE], 3, id="over an intermediate"),
        pytest.param(SIGNS, [ROOT], [SIGNS], 3, id="over an intermediate whose key is for that"),
        pytest.param(LAST, [ROOT], [LAST, MIDDLE], 4, id="over two intermediates"),
        pytest.param(MIDDLE, [ROOT], [STRANGER, MIDDLE, DOUBLE], 3, id="with others that lead nowhere"),
        pytest.param(MIDDLE, [MIDDLE], [], 2, id="an intermediate that is trusted itself"),
        pytest.param(MIDDLE, [Issuer(), ROOT, Issuer()], [Issuer(), MIDDLE], 3, id="among others"),
    ],
)
def test_verify(issuer: Issuer, roots: list[Issuer], intermediates: list[Issuer], length: int) -> None:
    cert, _ = issuer.issue(JOE)
    options = golangx509.VerifyOptions([root.cert for root in roots])
    chain = options.verify(cert, [each.cert for each in intermediates])
    assert (chain[0], len(chain)) == (cert, length)


@pytest.mark.parametrize("usages", [(), (CLIENT_AUTH,), (SERVER_AUTH, CLIENT_AUTH), (ANY_USAGE,)])
def test_usages_for_clients(usages: tuple[x509.ObjectIdentifier, ...]) -> None:
    cert, _ = ROOT.issue(JOE, usages)
    assert golangx509.VerifyOptions([ROOT.cert]).verify(cert)[0] == cert


@pytest.mark.parametrize(
    ("cert", "root", "intermediates"),
    [
        pytest.param(Issuer().issue(JOE)[0], ROOT, [], id="other authority of the same name"),
        pytest.param(MIDDLE.issue(JOE)[0], ROOT, [], id="intermediate is missing"),
        pytest.param(NO_AUTHORITY.issue(JOE)[0], ROOT, [NO_AUTHORITY], id="signed by somebody who may not"),
        pytest.param(DOES_NOT_SIGN.issue(JOE)[0], ROOT, [DOES_NOT_SIGN], id="signed with a key for other things"),
        pytest.param(ROOT.issue(JOE, valid_for=-HOUR)[0], ROOT, [], id="expired"),
        pytest.param(EXPIRED_ROOT.issue(JOE)[0], EXPIRED_ROOT, [], id="authority expired"),
        pytest.param(ROOT.issue(JOE, (SERVER_AUTH,))[0], ROOT, [], id="for servers"),
        pytest.param(with_critical_extension(), ROOT, [], id="with an unknown condition"),
        pytest.param(Issuer(JOE, ca=False).cert, ROOT, [], id="signed by itself"),
    ],
)
def test_verify_refuses(cert: x509.Certificate, root: Issuer, intermediates: list[Issuer]) -> None:
    options = golangx509.VerifyOptions([root.cert])
    with pytest.raises(golangx509.CertificateError, match=r"^x509: "):
        options.verify(cert, [each.cert for each in intermediates])


def with_constraint(issuer: Issuer) -> x509.Certificate:
    """Its own name must not be what it is."""
    cert = issuer.cert
    builder = x509.CertificateBuilder(cert.subject, JOE, ROOT.key.public_key(), 7)
    builder = builder.not_valid_before(cert.not_valid_before_utc).not_valid_after(cert.not_valid_after_utc)
    names = [x509.DNSName("joe")]
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.NameConstraints(None, names), critical=False)
    return builder.sign(issuer.key, hashes.SHA256())


@pytest.mark.parametrize(
    ("cert", "intermediates"),
    [
        pytest.param(with_constraint(STRANGER), [], id="names and constraints"),
        pytest.param(with_constraint(NO_AUTHORITY), [NO_AUTHORITY], id="names and constraints behind a client's own"),
        pytest.param(STRANGER.issue(JOE)[0], [STRANGER, DOUBLE], id="authorities that have signed each other"),
        pytest.param(NO_AUTHORITY.issue(JOE)[0], [NO_AUTHORITY], id="a client that signs"),
    ],
)
def test_what_no_authority_has_signed_is_not_judged_further(
    cert: x509.Certificate, intermediates: list[Issuer]
) -> None:
    """It would take seconds when there are many names, or many ways from one signature to the next."""
    options = golangx509.VerifyOptions([ROOT.cert])
    with pytest.raises(golangx509.CertificateError, match=r"^x509: certificate signed by unknown authority$"):
        options.verify(cert, [each.cert for each in intermediates])
