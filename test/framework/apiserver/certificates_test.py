from __future__ import annotations

import datetime
import json
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from framework.apiserver import certificates

CLIENT_USAGES = ["key encipherment", "digital signature", "client auth"]
SERVING_USAGES = ["digital signature", "server auth"]
HOUR = datetime.timedelta(hours=1)


@pytest.fixture(scope="module")
def authority() -> certificates.CertificateAuthority:
    return certificates.CertificateAuthority.create()


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def purposes(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    return [each._name for each in found]


def test_a_client_is_who_its_certificate_says(authority: certificates.CertificateAuthority) -> None:
    certificate = load(authority.client_pair("ann", ["staff", "system:masters"]).certificate)
    certificate.verify_directly_issued_by(authority.certificate)
    assert certificates.common_name(certificate.subject) == "ann"
    assert certificates.organizations(certificate.subject) == ["staff", "system:masters"]
    assert purposes(certificate) == ["clientAuth"]


def test_a_node_is_a_member_of_system_nodes(authority: certificates.CertificateAuthority) -> None:
    subject = load(authority.node_pair("n1").certificate).subject
    assert (certificates.common_name(subject), certificates.organizations(subject)) == (
        "system:node:n1",
        ["system:nodes"],
    )


def test_a_server_serves_under_its_names(authority: certificates.CertificateAuthority) -> None:
    certificate = load(authority.server_pair(["localhost", "127.0.0.1"]).certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert purposes(certificate) == ["serverAuth"]


def test_a_certificate_may_have_expired(authority: certificates.CertificateAuthority) -> None:
    certificate = load(authority.client_pair("ann", lifetime=-HOUR).certificate)
    assert certificate.not_valid_before_utc < certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC)


def test_an_authority_is_kept(tmp_path: Path) -> None:
    first = certificates.CertificateAuthority.load_or_create(tmp_path)
    second = certificates.CertificateAuthority.load_or_create(tmp_path)
    assert first.pem == second.pem
    assert stat.S_IMODE((tmp_path / "kubernetes-ca.key").stat().st_mode) == 0o600
    load(second.client_pair("ann").certificate).verify_directly_issued_by(first.certificate)


CHECKS = [
    ("a kubelet's client", "kubernetes.io/kube-apiserver-client-kubelet", CLIENT_USAGES, {}, None),
    (
        "without RSA's usage",
        "kubernetes.io/kube-apiserver-client-kubelet",
        ["digital signature", "client auth"],
        {},
        None,
    ),
    (
        "no group",
        "kubernetes.io/kube-apiserver-client-kubelet",
        CLIENT_USAGES,
        {"groups": []},
        "subject organization is not system:nodes",
    ),
    (
        "two groups",
        "kubernetes.io/kube-apiserver-client-kubelet",
        CLIENT_USAGES,
        {"groups": ["system:nodes", "system:masters"]},
        "subject organization is not system:nodes",
    ),
    (
        "no node",
        "kubernetes.io/kube-apiserver-client-kubelet",
        CLIENT_USAGES,
        {"user": "ann"},
        "subject common name does not begin with system:node:",
    ),
    (
        "client with a DNS name",
        "kubernetes.io/kube-apiserver-client-kubelet",
        CLIENT_USAGES,
        {"names": ["n1"]},
        "DNS subjectAltNames are not allowed",
    ),
    (
        "client with an address",
        "kubernetes.io/kube-apiserver-client-kubelet",
        CLIENT_USAGES,
        {"names": ["10.0.0.1"]},
        "IP subjectAltNames are not allowed",
    ),
    (
        "client with server usages",
        "kubernetes.io/kube-apiserver-client-kubelet",
        SERVING_USAGES,
        {},
        "usages did not match [client auth digital signature key encipherment]",
    ),
    ("a kubelet's server", "kubernetes.io/kubelet-serving", SERVING_USAGES, {"names": ["n1", "10.0.0.1"]}, None),
    (
        "server without names",
        "kubernetes.io/kubelet-serving",
        SERVING_USAGES,
        {},
        "DNS or IP subjectAltName is required",
    ),
    (
        "server with client usages",
        "kubernetes.io/kubelet-serving",
        CLIENT_USAGES,
        {"names": ["n1"]},
        "usages did not match [digital signature key encipherment server auth]",
    ),
    ("any client", "kubernetes.io/kube-apiserver-client", ["client auth"], {"user": "ann", "groups": []}, None),
    (
        "a client that serves",
        "kubernetes.io/kube-apiserver-client",
        ["client auth", "server auth"],
        {},
        "invalid usage for client certificate: server auth",
    ),
    (
        "a client without usages",
        "kubernetes.io/kube-apiserver-client",
        ["digital signature"],
        {},
        "missing required usage for client certificate: client auth",
    ),
    ("an unknown signer", "example.com/any", [], {}, 'unrecognized signerName: "example.com/any"'),
]


@pytest.mark.parametrize(
    ("signer", "usages", "request_", "error"), [row[1:] for row in CHECKS], ids=[r[0] for r in CHECKS]
)
def test_what_the_signers_sign(signer: str, usages: list[str], request_: dict[str, object], error: str | None) -> None:
    asked: dict[str, object] = {"user": "system:node:n1", "groups": ["system:nodes"], **request_}
    pem, _ = certificates.make_request(**asked)  # type: ignore[arg-type]
    parsed = certificates.parse_request(pem)
    if error is None:
        certificates.check_request(parsed, signer, usages)
        return
    with pytest.raises(certificates.RequestError) as raised:
        certificates.check_request(parsed, signer, usages)
    assert str(raised.value) == error


@pytest.mark.parametrize(
    ("pem", "error"),
    [
        (b"", "PEM block type must be CERTIFICATE REQUEST"),
        (b"-----BEGIN CERTIFICATE-----\n", "PEM block type must be CERTIFICATE REQUEST"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n", None),
    ],
)
def test_what_is_no_request(pem: bytes, error: str | None) -> None:
    with pytest.raises(certificates.RequestError, match=error):
        certificates.parse_request(pem)


@pytest.mark.parametrize(
    ("lifetime", "left"),
    [
        (HOUR, HOUR),  # A short lifetime is not shortened by the backdating.
        (24 * HOUR, 24 * HOUR - datetime.timedelta(minutes=5)),
        (100 * 365 * 24 * HOUR, None),  # The certificate does not outlive the authority.
    ],
)
def test_signing(
    authority: certificates.CertificateAuthority, lifetime: datetime.timedelta, left: datetime.timedelta | None
) -> None:
    pem, key = certificates.make_request("system:node:n1", ["system:nodes"], ["n1"])
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    signed = load(authority.sign(certificates.parse_request(pem), SERVING_USAGES, lifetime))
    after = datetime.datetime.now(datetime.UTC)
    signed.verify_directly_issued_by(authority.certificate)
    assert signed.public_key() == certificates.load_signing_key(key).public_key()
    assert isinstance(signed.public_key(), ec.EllipticCurvePublicKey)
    if left is None:
        assert signed.not_valid_after_utc == authority.certificate.not_valid_after_utc
    else:
        assert before + left <= signed.not_valid_after_utc <= after + left
    names = signed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n1"]


def test_a_request_that_was_tampered_with() -> None:
    pem, _ = certificates.make_request("system:node:n1")
    request = certificates.parse_request(pem)
    der = request.public_bytes(serialization.Encoding.DER)
    forged = der.replace(b"system:node:n1", b"system:node:n2")
    with pytest.raises(certificates.RequestError, match="signature"):
        certificates.parse_request(
            b"-----BEGIN CERTIFICATE REQUEST-----\n"
            + certificates._base64(forged).encode()
            + b"\n-----END CERTIFICATE REQUEST-----\n"
        )


def test_kubeconfig(authority: certificates.CertificateAuthority) -> None:
    pair = authority.client_pair("ann")
    config = json.loads(certificates.kubeconfig("https://127.0.0.1:1", authority.pem, "ann", pair, "secret"))
    assert config["current-context"] == config["contexts"][0]["name"]
    assert config["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:1"
    assert sorted(config["users"][0]["user"]) == ["client-certificate-data", "client-key-data", "token"]
