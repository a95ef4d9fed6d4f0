"""Test clients that present the current certificate to a real TLS server while a watch runs."""

from __future__ import annotations

import http.server
import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from framework.waiting import wait_for

from kubelet import certificate as kubeletcertificate
from kubelet.certificate.transport import CertRotation
from pkg import golang
from pkg.apimachinery import watch
from pkg.apimachinery.clock import testing as clocktesting
from pkg.client_go import kubernetes, rest
from pkg.client_go.util.certificate import testing

WAIT = 30.0
EXIT_AFTER = 300.0
NewClient = Callable[[rest.Config], kubernetes.Clientset]
AUTHORITY = testing.Authority()


class Server(http.server.ThreadingHTTPServer):
    """Run an API server with one node that requests client certificates and records the certificate of each request."""

    daemon_threads = True

    def __init__(self, directory: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        AUTHORITY.pair("server", ips=("127.0.0.1",)).load_into(context)
        context.load_verify_locations(cadata=AUTHORITY.cert_pem.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.requests: golang.Channel[tuple[str, str, int]] = golang.Channel(100)
        """Each entry holds the path, the certificate's owner, and the client's port, which tells connections apart."""
        self.events: golang.Channel[bytes] = golang.Channel(10)
        """The server sends these events to the watch. The watch ends with the channel."""

    def config(self) -> rest.Config:
        tls = rest.TLSClientConfig(ca_data=AUTHORITY.cert_pem)
        return rest.Config(host=f"https://127.0.0.1:{self.server_port}", tls_client_config=tls)

    def send_event(self, name: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.events.send(json.dumps({"type": "MODIFIED", "object": node}).encode() + b"\n")

    def request(self) -> tuple[str, str, int]:
        value, ok = self.requests.recv(WAIT)
        assert ok and value is not None, "no request came"
        return value


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        assert isinstance(self.connection, ssl.SSLSocket)
        der = self.connection.getpeercert(binary_form=True)
        name = "" if der is None else x509.load_der_x509_certificate(der).subject.rfc4514_string()
        self.server.requests.send((self.path, name.removeprefix("CN="), self.client_address[1]))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if "watch=" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for event in self.server.events:
                self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        body = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    thread = golang.go(server.serve_forever, 0.01, name="server")
    yield server
    server.events.close()
    server.shutdown()
    thread.join(WAIT)
    server.server_close()


@pytest.fixture
def new_client() -> Iterator[NewClient]:
    clients: list[kubernetes.Clientset] = []

    def new_client(config: rest.Config) -> kubernetes.Clientset:
        clients.append(kubernetes.new_for_config(config))
        return clients[-1]

    yield new_client
    for client in clients:
        client.close()


def test_rotation_while_a_watch_runs(server: Server, ctx: golang.Context, new_client: NewClient) -> None:
    manager = testing.FakeCertificateManager(AUTHORITY.pair("first"))
    config = server.config()
    kubeletcertificate.update_transport(ctx, config, manager, EXIT_AFTER)
    nodes = new_client(config).core_v1.nodes()

    watcher = nodes.watch(ctx)
    path, who, watch_port = server.request()
    assert "watch=" in path and who == "first"
    nodes.get(ctx, "n")
    nodes.get(ctx, "n")
    requests = [server.request() for _ in range(2)]
    assert [who for _, who, _ in requests] == ["first", "first"]
    assert requests[0][2] == requests[1][2] != watch_port, "an idle connection is used again"

    manager.cert = AUTHORITY.pair("second")
    nodes.get(ctx, "n")
    _, who, port = server.request()
    assert who == "second" and port not in (watch_port, requests[0][2])

    server.send_event("changed")
    event, ok = watcher.result_chan().recv(WAIT)
    assert ok and event is not None and event.type == watch.MODIFIED and event.object.metadata.name == "changed"
    watcher.stop()


def test_without_certificate_none_is_shown_until_there_is_one(
    server: Server, ctx: golang.Context, new_client: NewClient
) -> None:
    manager = testing.FakeCertificateManager()
    config = server.config()
    kubeletcertificate.update_transport(ctx, config, manager, EXIT_AFTER)
    nodes = new_client(config).core_v1.nodes()
    for cert, expected in ((None, ""), (AUTHORITY.pair("first"), "first"), (None, "")):
        manager.cert = cert
        nodes.get(ctx, "n")
        assert server.request()[1] == expected


def test_the_certificate_files_of_the_config_are_not_used(
    server: Server, ctx: golang.Context, new_client: NewClient
) -> None:
    config = server.config()
    config.tls_client_config.cert_file = config.tls_client_config.key_file = "/nowhere/kubelet-client-current.pem"
    config.tls_client_config.cert_data, config.tls_client_config.key_data = AUTHORITY.issue("own")
    kubeletcertificate.update_transport(
        ctx, config, testing.FakeCertificateManager(AUTHORITY.pair("first")), EXIT_AFTER
    )
    new_client(config).core_v1.nodes().get(ctx, "n")
    assert server.request()[1] == "first"


def test_close_all_ends_a_watch_of_a_client_of_a_copy(
    server: Server, ctx: golang.Context, new_client: NewClient
) -> None:
    config = server.config()
    close_all = kubeletcertificate.update_transport(ctx, config, None, 0)
    watcher = new_client(rest.copy_config(config)).core_v1.nodes().watch(ctx)
    server.request()
    assert config.connections is not None
    # A client that gets a response keeps its connections.
    config.connections.note_failure()
    close_all()
    while (received := watcher.result_chan().recv(WAIT))[1]:
        assert received[0] is not None and received[0].type == watch.ERROR
    assert watcher.result_chan().try_recv() == (None, False, True), "the watch goes on"


def test_a_second_transport_is_refused(ctx: golang.Context) -> None:
    config = rest.Config(host="https://127.0.0.1:1")
    kubeletcertificate.update_transport(ctx, config, None, 0)
    with pytest.raises(ValueError, match="there is already a transport or dialer configured"):
        kubeletcertificate.update_transport(ctx, config, None, 0)


@pytest.mark.parametrize(
    ("has_cert", "healthy", "exit_after", "without", "exits"),
    [
        pytest.param(True, True, EXIT_AFTER, 10000, False, id="there is one"),
        pytest.param(False, True, EXIT_AFTER, EXIT_AFTER - 1, False, id="not for long"),
        pytest.param(False, True, EXIT_AFTER, EXIT_AFTER + 1, True, id="for too long"),
        pytest.param(False, False, EXIT_AFTER, EXIT_AFTER + 1, False, id="the server does not answer"),
        pytest.param(False, True, 0, 10000, False, id="not asked to"),
    ],
)
def test_exit_when_there_is_no_certificate(
    has_cert: bool, healthy: bool, exit_after: float, without: float, exits: bool
) -> None:
    clock = clocktesting.FakeClock()
    manager = testing.FakeCertificateManager(AUTHORITY.pair("first"), healthy)
    codes: list[int] = []
    rotation = CertRotation(manager, exit_after, clock, codes.append)
    clock.step(1000)
    rotation.check()
    if not has_cert:
        manager.cert = None
    clock.step(without)
    rotation.check()
    assert codes == ([1] if exits else [])


def test_a_clock_that_is_set_ends_nothing() -> None:
    clock = clocktesting.FakeClock()
    codes: list[int] = []
    rotation = CertRotation(testing.FakeCertificateManager(healthy=True), EXIT_AFTER, clock, codes.append)
    clock._now = clock.now().replace(year=2035)
    rotation.check()
    assert codes == []


def test_the_manager_is_looked_at_from_time_to_time(ctx: golang.Context) -> None:
    clock = clocktesting.FakeClock()
    codes: golang.Channel[int] = golang.Channel(10)
    kubeletcertificate.update_transport(
        ctx, rest.Config(), testing.FakeCertificateManager(healthy=True), 25, clock=clock, exit_process=codes.try_send
    )

    def ends_the_process() -> bool:
        clock.step(1)
        return len(codes) > 0

    wait_for("the end of the process", ends_the_process)
    assert clock.monotonic() >= 26
