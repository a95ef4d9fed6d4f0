"""Connect clients through the server to kubelets, for logs, exec, attach, port forwarding, and other paths of a node.

The server forwards, byte by byte and in both directions at once, what a client sends after its request and what the
kubelet sends back. So it needs no code for SPDY, WebSockets and later protocols.

Go: k8s.io/kubernetes/pkg/registry/core/pod/strategy.go (LogLocation, streamLocation),
k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from urllib.parse import quote, urlencode

from pkg.apimachinery.util.proxy import Relay
from pkg.golang.http.conn import PlainConn, WaitingConn

from . import errors
from .connections import Responder
from .interfaces import Object, Request
from .resources import lookup

_CONNECT_TIMEOUT = 10.0
_READ_SIZE = 1 << 16
_NOT_FORWARDED = {"authorization", "host", "content-length", "transfer-encoding", "keep-alive", "x-forwarded-for"}


def kubelet_path(request: Request, pod: Object) -> str:
    """Return the path on the kubelet that serves a pod's log, exec, attach or portforward."""
    where = f"{quote(pod['metadata']['namespace'])}/{quote(pod['metadata']['name'])}"
    query: list[tuple[str, str]] = []
    match request.subresource:
        case "log":
            names = (
                "follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"
            )  # fmt: skip
            query = [(name, request.parameter(name)) for name in names if request.parameter(name)]
            path = f"/containerLogs/{where}/{quote(container_of(request, pod))}"
        case "portforward":
            ports = request.query.get("ports")
            query = [("port", ",".join(ports))] if ports else []
            path = f"/portForward/{where}"
        case subresource:
            flags = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
            query = [(sent, "1") for name, sent in flags if request.flag(name)]
            query += [("command", word) for word in request.query.get("command", [])]
            path = f"/{subresource}/{where}/{quote(container_of(request, pod))}"
    return f"{path}?{urlencode(query)}" if query else path


def container_of(request: Request, pod: Object) -> str:
    """Return the requested container, or the only one."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    groups: list[list[str]] = [
        [container["name"] for container in spec.get(key) or []]
        for key in ("containers", "initContainers", "ephemeralContainers")
    ]
    wanted = request.parameter("container")
    if wanted:
        if not any(wanted in group for group in groups):
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(groups[0]) == 1 and not groups[1] and not groups[2]:
        return groups[0][0]
    names = [container for group in groups for container in group]
    if len(groups[0]) == 1:
        return groups[0][0]
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(names)}]"
    raise errors.bad_request(message)


def kubelet_address(node: Object) -> tuple[str, int]:
    """Return the address and port of a node's kubelet. Raise ApiError if the node has no address."""
    addresses = {a.get("type"): a.get("address") for a in reversed(lookup(node, "status.addresses") or [])}
    for kind in ("InternalIP", "ExternalIP", "Hostname"):
        if addresses.get(kind):
            port = lookup(node, "status.daemonEndpoints.kubeletEndpoint.Port") or 10250
            return addresses[kind], port
    raise errors.ApiError(500, "", "no preferred addresses found; known addresses: []")


def forward(
    request: Request, responder: Responder, address: tuple[str, int], target: str, tls: ssl.SSLContext | None
) -> None:
    """Forward a request and its response until either side ends. Raise ApiError if the kubelet does not answer."""
    backend = _dial(address, tls)
    try:
        backend.sendall(_request_head(request, address, target) + request.body)
        begun = _checked_answer(request, backend) if request.subresource == "log" else b""
        client = responder.take_over()
        responder.code = 200
        relay = Relay(_conn(client.sock), _conn(backend))
        relay.backend.write(client.take_buffer())
        relay.client.write(begun)
        relay.run()
    except OSError:
        pass  # The connection ends this way when either side closes it.
    finally:
        backend.close()


def _checked_answer(request: Request, backend: socket.socket) -> bytes:
    """Return the beginning of a log. Raise a kubelet's error as the server's own ApiError.

    Go: k8s.io/apiserver/pkg/registry/generic/rest/response_checker.go
    """
    answer = b""
    while b"\r\n\r\n" not in answer and (part := backend.recv(_READ_SIZE)):
        answer += part
    # The response begins with HTTP/1.1 200 OK. It is empty if the kubelet has closed the connection.
    code = int(answer[9:12] or b"502")
    if code < 400:
        return answer
    while part := backend.recv(_READ_SIZE):
        answer += part
    text = answer.partition(b"\r\n\r\n")[2].decode(errors="replace")
    if code == 400:
        raise errors.bad_request(text)
    if code == 500:
        raise errors.internal_error(text)
    raise errors.server_response(code, request.resource, request.name, text)


class TLSClientConn(WaitingConn):
    """Use a connection with the standard library's TLS without blocking.

    The connection may lose data that arrives after the end of its own direction.
    """

    def __init__(self, secured: ssl.SSLSocket) -> None:
        super().__init__(secured)
        self._secured = secured

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self._secured.recv(n)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait_if_blocking(_event(err))

    def send(self, data: bytes | memoryview) -> int:
        while True:
            try:
                return self._secured.send(data)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait_if_blocking(_event(err))

    def sendall(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._secured.send(view) :]
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as err:
                self._wait(_event(err))

    def shutdown_write(self) -> None:
        # `unwrap` sends the end of this side, and then expects the end of the other side, which has not arrived yet. If
        # data arrives instead, that is an error, which ends the connection. The standard library cannot send the end
        # alone.
        with contextlib.suppress(ssl.SSLWantReadError):
            self._secured.unwrap()

    def pending(self) -> bytes:
        count = self._secured.pending()
        return self._secured.recv(count) if count else b""

    def close(self) -> None:
        self._secured.close()


def _event(err: ssl.SSLError) -> int:

    return select.POLLIN if isinstance(err, ssl.SSLWantReadError) else select.POLLOUT


def _conn(sock: socket.socket) -> PlainConn | TLSClientConn:
    return TLSClientConn(sock) if isinstance(sock, ssl.SSLSocket) else PlainConn(sock)


def _dial(address: tuple[str, int], tls: ssl.SSLContext | None) -> socket.socket:
    try:
        sock = socket.create_connection(address, timeout=_CONNECT_TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock if tls is None else tls.wrap_socket(sock, server_hostname=address[0])
    except OSError as err:
        text = f"error dialing backend: dial tcp {address[0]}:{address[1]}: {err}"
        raise errors.internal_error(text) from err


def _request_head(request: Request, address: tuple[str, int], target: str) -> bytes:
    upgrade = "upgrade" in request.headers
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {address[0]}:{address[1]}"]
    for name, value in request.headers.items():
        if name not in _NOT_FORWARDED and not (name == "connection" and not upgrade):
            lines.append(f"{name.title()}: {value}")
    if not upgrade:
        lines.append("Connection: close")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
