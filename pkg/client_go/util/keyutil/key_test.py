"""Test private keys in PEM data and files."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from pkg.client_go.util import keyutil
from pkg.client_go.util.keyutil import pem

EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PARAMETERS = pem.encode("EC PARAMETERS", bytes.fromhex("06082a8648ce3d030107"))


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


TRADITIONAL, PKCS8 = serialization.PrivateFormat.TraditionalOpenSSL, serialization.PrivateFormat.PKCS8


@pytest.mark.parametrize(
    ("data", "key"),
    [
        pytest.param(_pem(EC_KEY, TRADITIONAL), EC_KEY, id="SEC 1"),
        pytest.param(_pem(RSA_KEY, TRADITIONAL), RSA_KEY, id="PKCS 1"),
        pytest.param(_pem(EC_KEY, PKCS8), EC_KEY, id="PKCS 8 of an EC key"),
        pytest.param(_pem(RSA_KEY, PKCS8), RSA_KEY, id="PKCS 8 of an RSA key"),
        pytest.param(PARAMETERS + _pem(EC_KEY, TRADITIONAL), EC_KEY, id="after the curve"),
        pytest.param(b"a note\r\n" + _pem(EC_KEY, TRADITIONAL).replace(b"\n", b"\r\n"), EC_KEY, id="in DOS lines"),
    ],
)
def test_parse_private_key_pem(data: bytes, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    parsed = keyutil.parse_private_key_pem(data)
    assert isinstance(parsed, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey)
    assert parsed.private_numbers() == key.private_numbers()
    assert keyutil.marshal_private_key_to_pem(parsed) == _pem(key, TRADITIONAL)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(PARAMETERS, id="no key"),
        pytest.param(pem.encode(keyutil.EC_PRIVATE_KEY_BLOCK_TYPE, b"broken"), id="broken key"),
        pytest.param(_pem(EC_KEY, TRADITIONAL)[:-40], id="cut off"),
        pytest.param(
            EC_KEY.private_bytes(
                serialization.Encoding.PEM, TRADITIONAL, serialization.BestAvailableEncryption(b"secret")
            ),
            id="encrypted",
        ),
    ],
)
def test_parse_private_key_pem_refuses(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="data does not contain a valid RSA or ECDSA private key"):
        keyutil.parse_private_key_pem(data)
    file = tmp_path / "some.key"
    file.write_bytes(data)
    with pytest.raises(ValueError, match=f"error reading private key file {file}: data does not"):
        keyutil.private_key_from_file(str(file))


def test_load_or_generate_key_file_makes_one_and_finds_it_again(tmp_path: Path) -> None:
    file = tmp_path / "pki" / "kubelet.key"
    first = keyutil.load_or_generate_key_file(str(file))
    assert isinstance(keyutil.parse_private_key_pem(first), ec.EllipticCurvePrivateKey)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert keyutil.load_or_generate_key_file(str(file)) == first
    assert [path.name for path in file.parent.iterdir()] == ["kubelet.key"]


def test_load_or_generate_key_file_does_not_replace_what_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.key"
    file.write_bytes(b"")
    with pytest.raises(ValueError, match=f"error loading key from {file}: data does not contain"):
        keyutil.load_or_generate_key_file(str(file))
    assert file.read_bytes() == b""


def test_write_key_takes_the_file_from_others(tmp_path: Path) -> None:
    file = tmp_path / "kubelet.key"
    file.write_bytes(b"old")
    file.chmod(0o644)
    keyutil.write_key(str(file), b"new")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o600)


def test_pem_blocks() -> None:
    data = b"text\n" + pem.encode("A", b"x" * 100) + b"-----BEGIN B-----\nProc-Type: 4\n\nYQ==\n-----END B-----\n"
    assert list(pem.blocks(data)) == [pem.Block("A", False, b"x" * 100), pem.Block("B", True, b"a")]
