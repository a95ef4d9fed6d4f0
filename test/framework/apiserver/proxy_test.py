"""Test connections through the server to a kubelet."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from framework.apiserver import APIServer
from framework.apiserver.certificates import CertificateAuthority, client_context, server_context
from framework.apiserver.client import Client
from pkg import golang

_END = b"!"
_POD = "/api/v1/namespaces/default/pods/p"


class StubKubelet:
    """Serve HTTPS, record the requests, and echo the data after an upgrade, within a `with` block."""

    def __init__(self, directory: Path, authority: CertificateAuthority) -> None:
        (directory / "ca.crt").write_bytes(authority.pem)
        authority.client_pair("kube-apiserver").write(directory, "apiserver")
        certificate, key = authority.server_pair(["127.0.0.1"]).write(directory, "kubelet")
        self._context = server_context(certificate, key, directory / "ca.crt")
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.heads: list[str] = []
        self.refusal = ""  # A text here is the response in place of a log.
        # The event is set when the data has ended or the client has closed the connection.
        self.ended = threading.Event()
        self._thread = golang.go(self._serve, name="stub-kubelet")

    def __enter__(self) -> StubKubelet:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), self._context.wrap_socket(sock, server_side=True) as connection:
                self._answer(connection)

    def _answer(self, connection: ssl.SSLSocket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1)
        self.heads.append(head.decode())
        if b"Upgrade: echo" not in head:
            body = b"5\r\nline1\r\n6\r\nline2\n\r\n0\r\n\r\n"
            good = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + body
            connection.sendall(self.refusal.encode() or good)
            connection.unwrap()
            return
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        while (data := connection.recv(65536)) and not data.endswith(_END):
            connection.sendall(data)
        connection.sendall(data)
        self.ended.set()
        with contextlib.suppress(OSError):
            connection.unwrap()


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[StubKubelet]:
    with StubKubelet(tmp_path, CertificateAuthority.create()) as kubelet:
        yield kubelet


@pytest.fixture
def api(tmp_path: Path, kubelet: StubKubelet) -> Iterator[APIServer]:
    context = client_context(tmp_path / "apiserver.crt", tmp_path / "apiserver.key")
    with APIServer(kubelet_ssl_context=context) as api:
        addresses = [{"type": "Hostname", "address": "node"}, {"type": "InternalIP", "address": "127.0.0.1"}]
        endpoints = {"kubeletEndpoint": {"Port": kubelet.port}}
        status = {"addresses": addresses, "daemonEndpoints": endpoints}
        api.store.create("nodes", {"metadata": {"name": "node"}, "status": status})
        spec = {"nodeName": "node", "containers": [{"name": "c", "image": "i"}]}
        api.store.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
        yield api


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (f"{_POD}/log", "/containerLogs/default/p/c"),
        (
            f"{_POD}/log?follow=true&tailLines=5&container=c&other=x",
            "/containerLogs/default/p/c?follow=true&tailLines=5",
        ),
        ("/api/v1/nodes/node/proxy/stats/summary?a=b", "/stats/summary?a=b"),
        ("/api/v1/nodes/node/proxy/", "/"),
    ],
)
def test_answers_are_passed_on(api: APIServer, kubelet: StubKubelet, path: str, target: str) -> None:
    with Client(api.port) as client:
        assert client.call("GET", path) == (200, b"line1line2\n")
    assert kubelet.heads[0].startswith(f"GET {target} HTTP/1.1\r\n")


def test_many_containers_need_a_name(api: APIServer) -> None:
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    spec: dict[str, Any] = {"nodeName": "node", "containers": containers}
    api.store.create("pods", {"metadata": {"name": "two", "namespace": "default"}, "spec": spec})
    with Client(api.port) as client:
        code, status = client.call("GET", "/api/v1/namespaces/default/pods/two/log")
    assert code == 400
    assert status["message"] == "a container name must be specified for pod two, choose one of: [a b]"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (
            f"{_POD}/exec?command=sh&command=-c&container=c&stdin=true&stdout=true&tty=false",
            "/exec/default/p/c?input=1&output=1&command=sh&command=-c",
        ),
        (f"{_POD}/attach?stdout=true&stderr=true", "/attach/default/p/c?output=1&error=1"),
        (f"{_POD}/portforward?ports=80&ports=81", "/portForward/default/p?port=80%2C81"),
    ],
)
@pytest.mark.parametrize("size", [5, 3_000_000])
def test_an_upgraded_connection_carries_bytes_both_ways(
    api: APIServer, kubelet: StubKubelet, path: str, target: str, size: int
) -> None:
    data = b"x" * size + _END
    with socket.create_connection(("127.0.0.1", api.port), timeout=20) as client:
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: mine\r\n\r\n"
        # The first bytes come together with the request, as from an impatient client.
        client.sendall(head.encode() + b"first ")
        sender = golang.go(client.sendall, data, name="sender")
        got = b""
        while chunk := client.recv(65536):
            got += chunk
        sender.join()
    assert got.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert got.partition(b"\r\n\r\n")[2] == b"first " + data
    assert kubelet.heads[0].startswith(f"POST {target} HTTP/1.1\r\n")
    assert "mine" not in kubelet.heads[0], "the kubelet must not get the client's credentials"


def test_a_client_that_goes_is_noticed_by_the_kubelet(api: APIServer, kubelet: StubKubelet) -> None:
    with socket.create_connection(("127.0.0.1", api.port), timeout=20) as client:
        client.sendall(f"POST {_POD}/attach HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n".encode())
        assert client.recv(12) == b"HTTP/1.1 101"
        assert not kubelet.ended.is_set()
    assert kubelet.ended.wait(30)


@pytest.mark.parametrize(
    ("answer", "code", "reason", "message"),
    [
        ("400 Bad Request", 400, "BadRequest", "why not"),
        ("404 Not Found", 404, "NotFound", "the server could not find the requested resource ( pods p)"),
        (
            "422 Unprocessable Entity",
            422,
            "Invalid",
            "the server rejected our request due to an error in our request ( pods p)",
        ),
        ("500 Internal Server Error", 500, "InternalError", "Internal error occurred: why not"),
    ],
)
def test_log_that_the_kubelet_refuses(
    api: APIServer, kubelet: StubKubelet, answer: str, code: int, reason: str, message: str
) -> None:
    kubelet.refusal = f"HTTP/1.1 {answer}\r\nContent-Length: 7\r\n\r\nwhy not"
    with Client(api.port) as client:
        got, status = client.call("GET", f"{_POD}/log")
    assert (got, status["reason"], status["message"]) == (code, reason, message)


def test_a_kubelet_that_is_not_there(api: APIServer) -> None:
    node = api.store.get("nodes", "node")
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = 1
    api.store.update("nodes", node, subresource="status")
    with Client(api.port) as client:
        code, status = client.call("GET", f"{_POD}/log")
    assert code == 500
    assert status["message"].startswith("Internal error occurred: error dialing backend: dial tcp 127.0.0.1:1: ")
