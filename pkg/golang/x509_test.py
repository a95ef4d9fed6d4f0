"""Test whether a certificate leads to an authority."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

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
# Each of the two may have signed the other, and both may have signed the certificate.
STRANGER = Issuer(subject("stranger"))
DOUBLE = Issuer(subject("stranger"), key=STRANGER.key, signed_by=STRANGER)


def with_critical_extension() -> x509.Certificate:
    """Return a certificate with a critical extension that no program knows."""
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


def signed_by(key: ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey) -> tuple[x509.Certificate, x509.Certificate]:
    """Return a client's certificate, and that of its authority with this key."""
    hash_ = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()

    def make(name: x509.Name, public: Any, extension: x509.ExtensionType) -> x509.Certificate:
        builder = x509.CertificateBuilder(ROOT.name, name, public, 7).add_extension(extension, critical=True)
        builder = builder.not_valid_before(ROOT.cert.not_valid_before_utc)
        return builder.not_valid_after(ROOT.cert.not_valid_after_utc).sign(key, hash_)

    authority = make(ROOT.name, key.public_key(), x509.BasicConstraints(ca=True, path_length=None))
    return make(JOE, ROOT.key.public_key(), x509.ExtendedKeyUsage([CLIENT_AUTH])), authority


def of_version_1() -> tuple[x509.Certificate, x509.Certificate]:
    """Return certificates of version 1 like those of signed_by.

    The library cannot make them, so this function removes the version from a certificate without extensions and signs
    it again.
    """

    def der(tag: int, content: bytes) -> bytes:
        size = len(content)
        length = bytes([size]) if size < 128 else bytes([129, size]) if size < 256 else b"\x82" + size.to_bytes(2)
        return bytes([tag]) + length + content

    version, ecdsa_with_sha256 = b"\xa0\x03\x02\x01\x02", bytes.fromhex("300a06082a8648ce3d040302")
    tbs = der(0x30, ROOT.issue(JOE, usages=())[0].tbs_certificate_bytes.partition(version)[2])
    signature = der(0x03, b"\0" + ROOT.key.sign(tbs, ec.ECDSA(hashes.SHA256())))
    return x509.load_der_x509_certificate(der(0x30, tbs + ecdsa_with_sha256 + signature)), ROOT.cert


@pytest.mark.parametrize(
    ("pair", "taken"),
    [
        pytest.param(signed_by(rsa.generate_private_key(65537, 2048)), True, id="RSA"),
        pytest.param(signed_by(rsa.generate_private_key(65537, 1024)), False, id="short RSA"),
        pytest.param(signed_by(ed25519.Ed25519PrivateKey.generate()), False, id="Ed25519"),
        pytest.param(of_version_1(), False, id="version 1"),
    ],
)
def test_what_the_library_refuses(pair: tuple[x509.Certificate, x509.Certificate], taken: bool) -> None:
    cert, authority = pair
    options = golangx509.VerifyOptions([authority])
    if taken:
        assert options.verify(cert)[0] == cert
        return
    with pytest.raises(golangx509.CertificateError, match=r"^x509: (?!certificate signed by unknown)"):
        options.verify(cert)


def with_constraint(issuer: Issuer) -> x509.Certificate:
    """Return a certificate whose own name violates its name constraint."""
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
    """A certificate that no authority has signed is refused at once.

    Verifying such certificates would take seconds, because of many names or many paths between signatures.
    """
    options = golangx509.VerifyOptions([ROOT.cert])
    with pytest.raises(golangx509.CertificateError, match=r"^x509: certificate signed by unknown authority$"):
        options.verify(cert, [each.cert for each in intermediates])
