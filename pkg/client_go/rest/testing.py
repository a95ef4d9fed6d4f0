"""Run small HTTP(S) servers with responses and certificates chosen by the test."""

from __future__ import annotations

import datetime
import ipaddress
import itertools
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pkg import golang


@dataclass(frozen=True)
class Pair:
    """Hold a certificate and its key, as PEM data and as objects."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.cert.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def new_pair(name: str, issuer: Pair | None = None, days: int = 1, names: tuple[str, ...] | None = ()) -> Pair:
    """Return a certificate that expires in `days` days, or has expired if `days` is negative.

    Without an issuer the result is a certificate authority. The certificate is for `names`, by default for 127.0.0.1.
    With names=None it has no SubjectAlternativeName extension.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.cert.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - datetime.timedelta(days=365))
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if names is not None:
        alternatives: list[x509.GeneralName] = [x509.DNSName(one) for one in names]
        alternatives = alternatives or [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return Pair(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


@dataclass
class Request:
    """Represent one request that the server received."""

    verb: str
    uri: str
    headers: dict[str, str]
    body: bytes
    peer: str
    """`peer` is the common name of the client's certificate, or "" without one."""
    handler: BaseHTTPRequestHandler = field(repr=False)

    def answer(self, code: int = 200, body: bytes = b"{}", **headers: str) -> None:
        """Send a response; `Retry_After="1"` adds a header."""
        self.handler.send_response(code)
        for name, value in {"Content_Type": "application/json", **headers}.items():
            self.handler.send_header(name.replace("_", "-"), value)
        self.handler.send_header("Content-Length", str(len(body)))
        self.handler.end_headers()
        self.handler.wfile.write(body)

    def begin_stream(self) -> None:
        self.handler.send_response(200)
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()

    def send_chunk(self, data: bytes) -> None:
        """Send one chunk; an empty one ends the stream."""
        self.handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.handler.wfile.flush()


@dataclass
class Server:
    """Describe a server that runs within the with statement of `serve`."""

    url: str
    requests: list[Request]


@contextmanager
def serve(
    answer: Callable[[Request], None], pair: Pair | None = None, client_ca: Pair | None = None, path: Path | None = None
) -> Iterator[Server]:
    """Run a server.

    With a pair the server speaks TLS. With client_ca it requires a certificate of that authority. `path` is a directory
    for files.
    """
    requests: list[Request] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(self.command, self.path, dict(self.headers), body, _peer(self.connection), self)
            requests.append(request)
            answer(request)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    server = Quiet(("127.0.0.1", 0), Handler)
    if pair is not None:
        assert path is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = path / f"server-{pair.cert.serial_number}.pem"
        file.write_bytes(pair.cert_pem + pair.key_pem)
        context.load_cert_chain(file)
        if client_ca is not None:
            context.load_verify_locations(cadata=client_ca.cert_pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = golang.go(server.serve_forever, 0.01, name="test-server")
    try:
        yield Server(f"{'https' if pair else 'http'}://127.0.0.1:{server.server_address[1]}", requests)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


@contextmanager
def serve_raw(handle: Callable[[socket.socket, int], object]) -> Iterator[str]:
    """Run a server that handles each connection in a thread of its own, and yield its URL.

    `handle` receives the connection and its number. A connection ends when `handle` returns, or at the end of the with
    statement.
    """
    connections: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket, number: int) -> None:
        with suppress(OSError):
            handle(connection, number)
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        with suppress(OSError):
            for number in itertools.count():
                connections.append(listener.accept()[0])
                threads.append(golang.go(serve, connections[-1], number, name="raw-connection"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        acceptor = golang.go(accept, name="raw-server")
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            acceptor.join(30)
            for connection in connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(30)
            for connection in connections:
                connection.close()


def read_head(connection: socket.socket) -> bytes:
    """Return the request up to the empty line, or b"" if none arrives."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = connection.recv(1)
        if not byte:
            return b""
        head += byte
    return head


def _peer(connection: object) -> str:
    if not isinstance(connection, ssl.SSLSocket):
        return ""
    data = connection.getpeercert(binary_form=True)
    if not data:
        return ""
    name = x509.load_der_x509_certificate(data).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(name[0].value)
