"""Test the server's TLS."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from OpenSSL import SSL

from kubelet.server import NoServingCertificateError, TLSConfig, TLSOptions, new_tls_options, tls
from kubelet.server.tls import DEFAULT_CIPHER_SUITES, openssl_cipher_list, openssl_cipher_name
from pkg import golang
from pkg.apimachinery.util import proxy
from pkg.apiserver.server import dynamiccertificates
from pkg.client_go.util import certificate
from pkg.client_go.util.certificate.testing import Authority
from pkg.component_base.cli.flag import ciphersuites_flag
from pkg.golang import http
from pkg.golang.http.conn import PlainConn
from pkg.golang.testing import COSTLY_CERTIFICATES, HOUR, Issuer, der, subject

AUTHORITY = Authority("clients")


def new_pair(name: str = "node") -> certificate.Certificate:
    return Authority("servers").pair(name, ips=["127.0.0.1"])


PAIR = new_pair()


class ClientCA(dynamiccertificates.NoCAContent):
    content = b""

    def current_ca_bundle_content(self) -> bytes:
        return self.content


def config(**options: Any) -> TLSConfig:
    return TLSConfig(TLSOptions(**options), lambda: PAIR, dynamiccertificates.NoCAContent())


@contextlib.contextmanager
def serving(
    of: TLSConfig, handler: http.Handler = lambda w, r: w.write(b"ok"), limits: http.Limits | None = None
) -> Iterator[int]:
    server = http.Server(handler, name="test", tls_context=of.context, limits=limits)
    server.listen("127.0.0.1", 0)
    thread = golang.go(server.serve, name="test-server")
    try:
        yield server.port
    finally:
        server.close()
        thread.join()


@contextlib.contextmanager
def connected(port: int, method: int = SSL.TLS_CLIENT_METHOD, **options: Any) -> Iterator[SSL.Connection]:
    context = SSL.Context(method)
    if "max_version" in options:
        context.set_max_proto_version(options["max_version"])
    if "ciphers" in options:
        context.set_cipher_list(options["ciphers"])
    if "curves" in options:
        SSL._lib.SSL_CTX_set1_curves_list(context._context, options["curves"])  # type: ignore[attr-defined]
    with socket.create_connection(("127.0.0.1", port), timeout=None) as sock:
        connection = SSL.Connection(context, sock)
        connection.set_connect_state()
        connection.do_handshake()
        yield connection


def serial(port: int) -> int:
    pem = ssl.get_server_certificate(("127.0.0.1", port))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


@pytest.mark.parametrize(
    ("name", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "ECDHE-ECDSA-AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_RSA_WITH_3DES_EDE_CBC_SHA", "DES-CBC3-SHA"),
        ("TLS_ECDHE_RSA_WITH_RC4_128_SHA", "ECDHE-RSA-RC4-SHA"),
    ],
)
def test_openssl_cipher_name(name: str, openssl: str) -> None:
    assert openssl_cipher_name(name) == openssl


def test_openssl_knows_all_preferred_suites() -> None:
    for name in (*DEFAULT_CIPHER_SUITES, *ciphersuites_flag.PREFERRED_TLS_CIPHERS):
        if found := openssl_cipher_list([name]):
            SSL.Context(SSL.TLS_SERVER_METHOD).set_cipher_list(found.encode())


@pytest.mark.parametrize(
    ("options", "client", "accepted"),
    [
        ({}, {"max_version": SSL.TLS1_2_VERSION}, True),
        ({}, {"max_version": SSL.TLS1_1_VERSION, "ciphers": b"ALL:@SECLEVEL=0"}, False),
        ({"min_version": "VersionTLS13"}, {"max_version": SSL.TLS1_2_VERSION}, False),
        ({"min_version": "VersionTLS13"}, {}, True),
        (
            {"min_version": "VersionTLS11"},
            {"max_version": SSL.TLS1_1_VERSION, "ciphers": b"ALL:@SECLEVEL=0"},
            True,
        ),
        (
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)},
            {"max_version": SSL.TLS1_2_VERSION, "ciphers": b"ECDHE-ECDSA-AES256-GCM-SHA384"},
            True,
        ),
        (
            {"cipher_suites": ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)},
            {"max_version": SSL.TLS1_2_VERSION, "ciphers": b"ECDHE-ECDSA-AES128-GCM-SHA256"},
            False,
        ),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, {"max_version": SSL.TLS1_2_VERSION}, False),
        ({"cipher_suites": ("TLS_AES_128_GCM_SHA256",)}, {}, True),
        ({"curve_preferences": (24,)}, {"curves": b"P-384"}, True),
        ({"curve_preferences": (24, 4588)}, {"curves": b"X25519:X25519MLKEM768"}, True),
        ({"curve_preferences": (24,)}, {"curves": b"X25519:P-256"}, False),
    ],
)
def test_what_both_sides_must_have(options: dict[str, Any], client: dict[str, Any], accepted: bool) -> None:
    with serving(config(**options)) as port:
        if accepted:
            with connected(port, **client):
                pass
        else:
            with pytest.raises(SSL.Error), connected(port, **client):
                pass


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"min_version": "VersionTLS9"}, 'unknown tls version "VersionTLS9"'),
        ({"cipher_suites": ["none"]}, "Cipher suite none not supported or doesn't exist"),
        ({"curve_preferences": [0]}, r"curve preference 0 is out of range \(must be 1-65535\)"),
        ({"curve_preferences": [70000]}, "curve preference 70000 is out of range"),
        ({"curve_preferences": [23, 29, 23]}, "duplicate curve preference 23"),
        ({"curve_preferences": [9999]}, "curve preference 9999 is not supported"),
    ],
)
def test_options_that_do_not_exist(fields: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"min_version": "", "cipher_suites": (), "curve_preferences": (), **fields}
    with pytest.raises(ValueError, match=message):
        new_tls_options(**options, cert_file="", key_file="", client_ca_file="")


def test_a_new_certificate_is_used_from_the_next_connection_on() -> None:
    pairs = [new_pair("first")]
    of = TLSConfig(TLSOptions(), lambda: pairs[-1], dynamiccertificates.NoCAContent())
    with serving(of) as port:
        assert serial(port) == pairs[0].leaf.serial_number
        with connected(port) as early:
            pairs.append(new_pair("second"))
            assert serial(port) == pairs[1].leaf.serial_number
            early.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert early.recv(100).startswith(b"HTTP/1.1 200"), "an open connection stays as it is"
    assert of.context() is of.context()


def test_a_key_does_not_keep_something_of_each_thread_that_ever_signed() -> None:
    """OpenSSL's memory per thread is freed with the key, when the last connection of the key's context ends."""
    of = config()
    first = weakref.ref(of.context())
    for _ in range(tls.MAX_CONNECTIONS_OF_CONTEXT - 1):
        assert of.context() is first()
    assert of.context() is not first()
    assert first() is None


@pytest.mark.parametrize("options", [{}, {"min_version": "VersionTLS13"}], ids=["default", "TLS 1.3"])
def test_a_certificate_with_a_short_key_is_served(tmp_path: Path, options: dict[str, Any]) -> None:
    key = rsa.generate_private_key(65537, 1024)
    cert = self_signed(key)
    (tmp_path / "crt").write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    pair = certificate.load_x509_key_pair(str(tmp_path / "crt"), str(tmp_path / "key"))
    of = TLSConfig(TLSOptions(**options), lambda: pair, dynamiccertificates.NoCAContent())
    with serving(of) as port, connected(port, ciphers=b"DEFAULT:@SECLEVEL=1") as client:
        shown = client.get_peer_certificate()
        assert shown is not None and shown.to_cryptography() == cert


def self_signed(key: rsa.RSAPrivateKey, *extensions: x509.ExtensionType) -> x509.Certificate:
    name, now = subject("node"), datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - HOUR, now + HOUR)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256())


def test_no_certificate_yet() -> None:
    of = TLSConfig(TLSOptions(), lambda: None, dynamiccertificates.NoCAContent())
    with pytest.raises(NoServingCertificateError, match="no serving certificate available for the kubelet"):
        of.context()
    with serving(of) as port, pytest.raises(SSL.Error), connected(port):
        pass


def test_clients_are_told_whose_certificates_are_known() -> None:
    client_ca = ClientCA()
    of = TLSConfig(TLSOptions(client_ca_file="ca.crt"), lambda: PAIR, client_ca)

    def asked_for(port: int) -> Sequence[str]:
        with connected(port) as connection:
            return [str(name.CN).split("@")[0] for name in connection.get_client_ca_list()]

    with serving(of) as port:
        assert asked_for(port) == []
        client_ca.content = AUTHORITY.cert_pem
        assert asked_for(port) == ["clients"]
        client_ca.content += Authority("others").cert_pem
        assert asked_for(port) == ["clients", "others"]


def test_without_an_authority_no_certificate_is_asked_for(tmp_path: Path) -> None:
    seen: list[list[bytes]] = []

    def handler(w: http.ResponseWriter, r: http.Request) -> None:
        seen.append(r.peer_certificates)

    cert, key = AUTHORITY.issue("somebody")
    (tmp_path / "client.pem").write_bytes(cert + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tmp_path / "client.pem")
    for client_ca_file in ("", "ca.crt"):
        of = TLSConfig(TLSOptions(client_ca_file=client_ca_file), lambda: PAIR, dynamiccertificates.NoCAContent())
        server = http.Server(handler, name="test", tls_context=of.context)
        server.listen("127.0.0.1", 0)
        thread = golang.go(server.serve, name="test-server")
        with contextlib.closing(_request(server.port, context)) as sock:
            sock.recv(100)
        server.close()
        thread.join()
    assert seen == [[], [ssl.PEM_cert_to_DER_cert(cert.decode())]]


def test_a_chain_is_not_judged_in_the_handshake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL verifies no chain in the handshake, because the client's keys may be arbitrarily large."""
    depths: set[int] = set()
    seen: list[list[bytes]] = []
    set_verify = SSL.Context.set_verify

    def record_depths(context: SSL.Context, mode: int, callback: Callable[..., bool]) -> None:
        def note(*said: Any) -> bool:
            depths.add(said[3])
            return callback(*said)

        set_verify(context, mode, note)

    monkeypatch.setattr(SSL.Context, "set_verify", record_depths)
    issuers = [Issuer(subject("0"))]
    for number in range(1, 5):
        issuers.insert(0, Issuer(subject(str(number)), signed_by=issuers[0]))
    cert, key = issuers[0].issue(subject("somebody"))
    pem = serialization.Encoding.PEM
    chain = [cert, *(each.cert for each in issuers)]
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "client.pem").write_bytes(b"".join(each.public_bytes(pem) for each in chain) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(tmp_path / "client.pem")
    of = TLSConfig(TLSOptions(client_ca_file="ca.crt"), lambda: PAIR, dynamiccertificates.NoCAContent())
    with (
        serving(of, lambda w, r: seen.append(r.peer_certificates)) as port,
        contextlib.closing(_request(port, context)) as sock,
    ):
        sock.recv(100)
    assert seen == [[der(each) for each in chain]]
    assert depths and max(depths) <= 1


def test_certificates_count_before_the_handshake_is_over() -> None:
    """Certificates count against the memory limit during the handshake: a list of names takes megabytes."""
    of = TLSConfig(TLSOptions(client_ca_file="ca.crt"), lambda: PAIR, dynamiccertificates.NoCAContent())
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    key = rsa.generate_private_key(65537, 2048)
    context.use_certificate(self_signed(key, x509.SubjectAlternativeName([x509.DNSName("a")] * 10_000)))
    context.use_privatekey(key)
    client = SSL.Connection(context)
    client.set_connect_state()
    with (
        serving(of, limits=http.Limits(unauthenticated_bytes=1 << 20)) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
    ):
        sock.sendall(_say(client))
        while not (said := _say(client)):
            client.bio_write(sock.recv(1 << 14))
        # The end of the message that proves the client's ownership of the certificate is missing.
        sock.sendall(said[:-1])
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1 << 14):
                pass


def _say(client: SSL.Connection) -> bytes:
    """Return the client's next message in the handshake."""
    with contextlib.suppress(SSL.WantReadError):
        client.do_handshake()
    with contextlib.suppress(SSL.WantReadError):
        return client.bio_read(1 << 17)
    return b""


def _request(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10))
    sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    return sock


def test_a_stream_that_is_faster_than_the_client() -> None:
    """OpenSSL continues a partial write with the same bytes once the client reads more."""
    data = bytes(range(256)) * 40_000

    def pour(sock: socket.socket) -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    def relay(w: http.ResponseWriter, r: http.Request) -> None:
        client, _ = w.hijack()
        near, far = socket.socketpair()
        with near, far:
            source = golang.go(pour, far, name="source")
            proxy.Relay(client, PlainConn(near)).run()
            source.join()

    received = bytearray()
    with serving(config(), relay) as port, connected(port) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        with pytest.raises(SSL.ZeroReturnError):
            while True:
                received += connection.recv(1 << 16)
    assert received == data


def test_nobody_has_the_server_compute_with_numbers_of_his_own() -> None:
    """Costly keys are rejected: with them, four unauthorized clients could block the server."""
    of = TLSConfig(TLSOptions(client_ca_file="ca.crt"), lambda: PAIR, dynamiccertificates.NoCAContent())
    issuer, context = Issuer(), SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_cipher_list(b"DEFAULT:@SECLEVEL=0")
    context.use_certificate(issuer.cert)
    context.use_privatekey(issuer.key)
    context.add_extra_chain_cert(COSTLY_CERTIFICATES["prime field"])
    with serving(of) as port, socket.create_connection(("127.0.0.1", port), timeout=None) as sock:
        connection = SSL.Connection(context, sock)
        connection.set_connect_state()
        # The client sends nothing after the handshake: the data could arrive after the server has closed the
        # connection, and the client would see a reset instead of the alert.
        with pytest.raises(SSL.Error, match="alert"):
            connection.do_handshake()
            connection.recv(100)
