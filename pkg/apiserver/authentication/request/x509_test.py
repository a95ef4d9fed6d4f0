"""Test authentication by client certificates."""

from __future__ import annotations

import hashlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from pkg import features
from pkg.apiserver.authentication import authenticator
from pkg.apiserver.authentication import user as userinfo
from pkg.apiserver.authentication.request import x509 as x509request
from pkg.component_base.featuregate.testing import set_feature_gate_during_test
from pkg.component_base.metrics import legacyregistry
from pkg.golang import x509 as golangx509
from pkg.golang.http.testing import request
from pkg.golang.testing import HOUR, Issuer, der, subject

ROOT = Issuer()
MIDDLE = Issuer(subject("middle"), signed_by=ROOT)


def authenticate(*certificates: bytes) -> authenticator.Response | None:
    options = golangx509.VerifyOptions([ROOT.cert])
    auth = x509request.Authenticator(lambda: options)
    return auth.authenticate_request(request("GET", "/", peer_certificates=list(certificates)))


def test_user_of_a_certificate() -> None:
    cert, _ = ROOT.issue(subject("joe", ["cooks", "waiters"], ["u-1"]))
    response = authenticate(der(cert))
    assert response is not None
    digest = hashlib.sha256(der(cert)).hexdigest()
    extra = {userinfo.CREDENTIAL_ID_KEY: (f"X509SHA256={digest}",)}
    assert response.user == userinfo.Info("joe", "u-1", ("cooks", "waiters"), extra)


def test_intermediates_come_from_the_client() -> None:
    cert, _ = MIDDLE.issue(subject("joe"))
    response = authenticate(der(cert), der(MIDDLE.cert))
    assert response is not None and response.user.name == "joe"
    with pytest.raises(authenticator.AuthenticationError, match="verifying certificate SN="):
        authenticate(der(cert))


def test_lifetimes_are_counted() -> None:
    authenticate(der(ROOT.issue(subject("joe"))[0]))  # The metric exists from the first authenticator on.

    def count() -> float:
        found = legacyregistry.DEFAULT_GATHERER.get_sample_value(
            "apiserver_client_certificate_expiration_seconds_bucket", {"le": "3600.0"}
        )
        assert found is not None
        return found

    before = count()
    authenticate(der(ROOT.issue(subject("joe"), valid_for=HOUR / 4)[0]))
    authenticate(der(ROOT.issue(subject("joe"), valid_for=10 * HOUR)[0]))
    assert count() == before + 1


def test_no_opinion() -> None:
    assert authenticate() is None
    nameless, _ = ROOT.issue(subject(organization=["system:masters"]))
    assert authenticate(der(nameless)) is None
    cert, _ = ROOT.issue(subject("joe"))
    nobody_is_trusted = x509request.Authenticator(lambda: None)
    assert nobody_is_trusted.authenticate_request(request("GET", "/", peer_certificates=[der(cert)])) is None


def unreadable(*extensions: tuple[str, bytes], name: x509.Name | None = None, signed_by: Issuer = ROOT) -> bytes:
    """Return a certificate that the library's builder refuses to make; 1.2.3.9.9.2 becomes a second 1.2.3.9.9.1."""
    builder = x509.CertificateBuilder(signed_by.name, name or subject("joe"), ROOT.key.public_key(), 7)
    builder = builder.not_valid_before(ROOT.cert.not_valid_before_utc).not_valid_after(ROOT.cert.not_valid_after_utc)
    for oid, value in extensions:
        builder = builder.add_extension(x509.UnrecognizedExtension(x509.ObjectIdentifier(oid), value), critical=False)
    made = der(builder.sign(signed_by.key, hashes.SHA256()))
    return made.replace(b"\x2a\x03\x09\x09\x02", b"\x2a\x03\x09\x09\x01")


def name_of_bits() -> x509.Name:
    """Return a common name that is not text."""
    bits = x509.NameAttribute(NameOID.X500_UNIQUE_IDENTIFIER, b"\0joe", _ASN1Type.BitString)
    bits._oid = NameOID.COMMON_NAME
    return x509.Name([bits])


TWICE = unreadable(("1.2.3.9.9.1", b"a"), ("1.2.3.9.9.2", b"b"))
X400_NAME = unreadable(("2.5.29.17", b"\x30\x04\xa3\x02\x30\x00"))
TLS_FEATURE = unreadable(("1.3.6.1.5.5.7.1.24", b"\x30\x03\x02\x01\x63"), signed_by=Issuer())
BITS = unreadable(name=name_of_bits())
OTHER_VERSION = der(ROOT.cert).replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09", 1)


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        pytest.param(der(Issuer().issue(subject("joe"))[0]), "verifying certificate SN=", id="other authority"),
        pytest.param(der(ROOT.issue(subject("joe"), valid_for=-HOUR)[0]), "not valid at", id="expired"),
        pytest.param(der(ROOT.issue(subject("joe", uids=["a", "b"]))[0]), "but found multiple", id="two UIDs"),
        pytest.param(b"\x30\x03nonsense", "malformed client certificate", id="nonsense"),
        pytest.param(b"", "malformed client certificate", id="nothing"),
        pytest.param(TWICE, "malformed client certificate: Duplicate", id="an extension twice"),
        pytest.param(X400_NAME, "malformed client certificate: x400Address", id="a name of a kind that nobody uses"),
        pytest.param(TLS_FEATURE, "malformed client certificate: 99", id="a feature that nobody knows"),
        pytest.param(BITS, "malformed client certificate: oid must be", id="a name that is no text"),
        pytest.param(OTHER_VERSION, "malformed client certificate: 9 is not a valid", id="a version there is not"),
    ],
)
def test_faults(certificate: bytes, message: str) -> None:
    with pytest.raises(authenticator.AuthenticationError, match=message):
        authenticate(certificate)


def test_uid_is_not_parsed_with_the_gate_off() -> None:
    cert, _ = ROOT.issue(subject("joe", uids=["u-1"]))
    with set_feature_gate_during_test(features.feature_gate, features.ALLOW_PARSING_USER_UID_FROM_CERT_AUTH, False):
        response = authenticate(der(cert))
    assert response is not None and response.user.uid == ""


def test_certificate_identifier() -> None:
    key = ROOT.key.public_key()
    cert = (
        x509.CertificateBuilder(ROOT.name, subject("x"), key, 7)
        .not_valid_before(ROOT.cert.not_valid_before_utc)
        .not_valid_after(ROOT.cert.not_valid_after_utc)
        .add_extension(x509.SubjectKeyIdentifier(b"\x01\xab"), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier(b"\xff\x00", None, None), critical=False)
        .sign(ROOT.key, ROOT.cert.signature_hash_algorithm)  # type: ignore[arg-type]
    )
    assert x509request.certificate_identifier(cert) == "SN=7, SKID=01:AB, AKID=FF:00"
    assert x509request.certificate_identifier(ROOT.cert).endswith("SKID=, AKID=")


def test_certificate_identifier_of_a_large_one() -> None:
    """The log does not identify a large certificate by its extensions.

    Each of its names would take a hundred times its size in memory.
    """
    names = x509.SubjectAlternativeName([x509.DNSName("a")] * x509request.MAX_IDENTIFIED_BYTES)
    large = unreadable(("2.5.29.17", names.public_bytes()), ("2.5.29.14", b"\x04\x01\xab"))
    assert x509request.certificate_identifier(x509.load_der_x509_certificate(large)) == "SN=7"
