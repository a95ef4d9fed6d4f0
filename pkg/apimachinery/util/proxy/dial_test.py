"""Test connections to the server that a URL names."""

from __future__ import annotations

import contextlib
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
from pkg.golang.net.testing import Resolver


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Return a self-signed certificate for 127.0.0.1 with its key."""
    return issue(tmp_path, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))


def issue(tmp_path: Path, *names: x509.GeneralName, subject: str = "runtime") -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "runtime.pem"
    path.write_bytes(certificate.public_bytes(pem) + private)
    return path


@contextmanager
def echo(certificate: Path, may_answer: threading.Event | None = None) -> Iterator[int]:
    """Run a server that echoes all data once the data has ended, and yield its port.

    The server also waits for may_answer if it is given.
    """
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
                with contextlib.suppress(OSError):
                    secured.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = golang.go(serve, name="echo")
        yield listener.getsockname()[1]
        thread.join()


def test_a_runtime_behind_tls(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection over TLS works with a certificate that the machine trusts.

    The client ends its direction before the server sends anything.
    """
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


def test_what_is_under_way_arrives_after_the_end_of_the_writing(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data in transit arrives after the client has ended its direction.

    The runtime has already sent much data by then, and sends more afterwards.
    """
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    before, after = b"b" * 100_000, b"a" * 1_000_000
    with talking(certificate, before, after) as port:
        conn = proxy.dial_url(urlsplit(f"https://127.0.0.1:{port}/exec/token"))
        conn.settimeout(TIMEOUT)
        received = conn.recv(1)
        conn.shutdown_write()
        while data := conn.recv(1 << 16):
            received += data
        assert received == before + after
        conn.close()


@contextmanager
def talking(certificate: Path, before: bytes, after: bytes) -> Iterator[int]:
    """Run a server that sends data before and after the client has ended its direction, and yield its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def serve() -> None:
        sock, _ = listener.accept()
        sock.settimeout(TIMEOUT)
        with sock, context.wrap_socket(sock, server_side=True) as secured:
            secured.sendall(before)
            assert secured.recv(100) == b""
            secured.sendall(after)
            # Go's server announces the end of the connection in the same way.
            secured.unwrap()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = golang.go(serve, name="talking")
        yield listener.getsockname()[1]
        thread.join()


LOCALHOST, WILDCARD = x509.DNSName("localhost"), x509.DNSName("*.localhost")


@pytest.mark.parametrize(
    ("names", "host", "is_right"),
    [
        ([LOCALHOST], "localhost", True),
        ([x509.DNSName("other"), LOCALHOST], "localhost", True),
        ([x509.DNSName("other")], "localhost", False),
        ([WILDCARD], "localhost", False),
        ([LOCALHOST], "127.0.0.1", False),
        ([x509.DNSName("127.0.0.1")], "127.0.0.1", False),
        ([x509.IPAddress(ipaddress.ip_address("127.0.0.2"))], "127.0.0.1", False),
        ([x509.DNSName("other")], "runtime", False),
    ],
)
def test_the_certificate_is_of_the_host_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[x509.GeneralName], host: str, is_right: bool
) -> None:
    certificate = issue(tmp_path, *names)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    names_of_hosts = Resolver(monkeypatch)
    with echo(certificate) as port:
        names_of_hosts.addresses[host] = [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("127.0.0.1", port))
        ]
        if is_right:
            proxy.dial_url(urlsplit(f"https://{host}:{port}/")).close()
        else:
            with pytest.raises(OSError, match=r"certificate verify failed: .* mismatch"):
                proxy.dial_url(urlsplit(f"https://{host}:{port}/"))


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
