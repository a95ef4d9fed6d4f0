"""Connections to the server that a URL names."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pkg import golang
from pkg.apimachinery.util import proxy
from pkg.apimachinery.util.proxy.testing import TIMEOUT


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Of 127.0.0.1, with its key, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "runtime")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "runtime.pem"
    path.write_bytes(certificate.public_bytes(pem) + private)
    return path


@contextmanager
def echo(certificate: Path, may_answer: threading.Event | None = None) -> Iterator[int]:
    """A server that says what it was told once it has been told all, and the event is set if there is one; the port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve() -> None:
        sock, _ = listener.accept()
        sock.settimeout(TIMEOUT)
        with sock:
            try:
                secured = context.wrap_socket(sock, server_side=True)
            except OSError:
                return
            with secured:
                told = b"".join(iter(lambda: secured.recv(1 << 16), b""))
                assert may_answer is None or may_answer.wait(TIMEOUT)
                secured.sendall(told)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = golang.go(serve, name="echo")
        yield listener.getsockname()[1]
        thread.join()


def test_a_runtime_behind_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a certificate that the machine trusts; what is sent ends before what comes back begins."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    data, ended = bytes(range(256)) * 2000, threading.Event()
    with echo(certificate, ended) as port:
        conn = proxy.dial_url(urlsplit(f"https://127.0.0.1:{port}/exec/token"))
        conn.settimeout(TIMEOUT)
        conn.sendall(data)
        conn.shutdown_write()
        ended.set()
        assert b"".join(iter(lambda: conn.recv(1 << 16), b"")) == data
        conn.close()


def test_a_runtime_whose_certificate_nobody_trusts(certificate: Path) -> None:
    refusal = r"error dialing backend: .*self.signed certificate"
    with echo(certificate) as port, pytest.raises(proxy.BackendError, match=refusal):
        proxy.dial_for_upgrade(f"https://127.0.0.1:{port}/exec/token", "POST", [])


def test_what_cannot_be_done_now_is_said(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with echo(certificate) as port:
        conn = proxy.dial_url(urlsplit(f"https://127.0.0.1:{port}/"))
        conn.setblocking(False)
        with pytest.raises(BlockingIOError):
            conn.recv(1)
        conn.settimeout(0.01)
        with pytest.raises(TimeoutError):
            conn.recv(1)
        conn.close()
