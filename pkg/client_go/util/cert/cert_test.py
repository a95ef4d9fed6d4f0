"""Test certificates and certificate requests, and their files."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa

from pkg.client_go.util import cert as certutil
from pkg.client_go.util import keyutil
from pkg.client_go.util.cert import csr
from pkg.client_go.util.keyutil import pem


@pytest.mark.parametrize(
    ("host", "dns", "ips"),
    [
        pytest.param("node-1", ["node-1", "alias"], ["192.0.2.1"], id="name"),
        pytest.param("192.0.2.9", ["alias"], ["192.0.2.9", "192.0.2.1"], id="ip"),
        pytest.param("n" * 70, ["n" * 70, "alias"], ["192.0.2.1"], id="name too long for a common name"),
    ],
)
def test_generate_self_signed_cert_key(host: str, dns: list[str], ips: list[str]) -> None:
    cert_pem, key_pem = certutil.generate_self_signed_cert_key(host, [ipaddress.ip_address("192.0.2.1")], ["alias"])
    cert, ca = certutil.parse_certs_pem(cert_pem)
    cert.verify_directly_issued_by(ca)
    names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == dns
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ips
    assert cert.not_valid_after_utc - cert.not_valid_before_utc == datetime.timedelta(days=365)
    assert cert.not_valid_before_utc < datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=59)
    key = keyutil.parse_private_key_pem(key_pem)
    assert isinstance(key, rsa.RSAPrivateKey) and key.public_key() == cert.public_key()


def test_self_signed_certificate_satisfies_a_strict_client(tmp_path: Path) -> None:
    cert_pem, key_pem = certutil.generate_self_signed_cert_key("node-1")
    (tmp_path / "pair.pem").write_bytes(cert_pem + key_pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "pair.pem")
    client = ssl.create_default_context(
        cadata=certutil.encode_certificates(certutil.parse_certs_pem(cert_pem)[1]).decode()
    )
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname="node-1")
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side, client_side, server_side):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
    assert client_side.version() is not None and client_side.getpeercert() != {}


@pytest.mark.parametrize("size", [0, 2048], ids=["ecdsa", "rsa"])
def test_make_csr(size: int) -> None:
    key: keyutil.PrivateKey
    if size:
        key = rsa.generate_private_key(public_exponent=65537, key_size=size)
    else:
        key = keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem())
    data = certutil.make_csr(
        key, "system:node:n", ("system:nodes",), ("localhost",), (ipaddress.ip_address("127.0.0.1"),)
    )
    (block,) = pem.blocks(data)
    assert block.type == certutil.CERTIFICATE_REQUEST_BLOCK_TYPE
    request = x509.load_der_x509_csr(block.data)
    assert request.is_signature_valid and request.public_key() == key.public_key()
    assert [attribute.value for attribute in request.subject] == ["system:nodes", "system:node:n"]
    names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]


def test_make_csr_without_names_has_no_extension() -> None:
    key = keyutil.parse_private_key_pem(keyutil.make_elliptic_private_key_pem())
    request = x509.load_pem_x509_csr(certutil.make_csr(key, "n"))
    assert list(request.extensions) == []


@pytest.mark.parametrize(("size", "expected"), [(2048, hashes.SHA256), (3072, hashes.SHA384), (4096, hashes.SHA512)])
def test_signature_hash_grows_with_an_rsa_key(
    size: int, expected: type[hashes.HashAlgorithm], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    class Sized:
        key_size = size

    monkeypatch.setattr(rsa, "RSAPrivateKey", Sized)
    assert isinstance(csr._signature_hash(Sized()), expected)  # type: ignore[arg-type]
    assert key.key_size == 2048


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param((), False, id="neither"),
        pytest.param(("a.crt", "a.key"), True, id="both"),
        pytest.param(("a.crt",), "a.key, certificate and key must be supplied as a pair", id="no key"),
        pytest.param(("a.key",), "a.crt, certificate and key must be supplied as a pair", id="no certificate"),
    ],
)
def test_can_read_cert_and_key(tmp_path: Path, there: tuple[str, ...], expected: bool | str) -> None:
    for name in there:
        (tmp_path / name).touch()
    paths = str(tmp_path / "a.crt"), str(tmp_path / "a.key")
    if isinstance(expected, bool):
        assert certutil.can_read_cert_and_key(*paths) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            certutil.can_read_cert_and_key(*paths)


def test_write_cert_and_read_it(tmp_path: Path) -> None:
    file = tmp_path / "pki" / "a.crt"
    cert_pem, _ = certutil.generate_self_signed_cert_key("n")
    certutil.write_cert(str(file), b"x" * 10000)
    certutil.write_cert(str(file), cert_pem)
    assert file.read_bytes() == cert_pem and stat.S_IMODE(file.stat().st_mode) == 0o644
    assert certutil.encode_certificates(*certutil.certs_from_file(str(file))) == cert_pem


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(keyutil.make_elliptic_private_key_pem(), id="a key"),
        pytest.param(pem.encode("CERTIFICATE", b"broken"), id="broken"),
    ],
)
def test_certs_from_file_names_the_file(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.crt"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=f"error reading {file}: "):
        certutil.certs_from_file(str(file))
