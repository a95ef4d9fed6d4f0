"""Connections through the server to kubelets: logs, exec, attach, port forwarding, and a node's other paths.

What a client sends after its request and what the kubelet answers is passed on byte by byte, both ways at once, so
SPDY, WebSockets and whatever comes after them need no words here.

Go: k8s.io/kubernetes/pkg/registry/core/pod/strategy.go (LogLocation, streamLocation),
k8s.io/apimachinery/pkg/util/proxy/upgradeaware.go
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
from urllib.parse import quote, urlencode

from . import errors
from .connections import Responder
from .interfaces import Object, Request
from .resources import lookup

_CONNECT_TIMEOUT = 10.0
# How long the other direction may go on after one has ended.
_LINGER_MS = 10_000
_READ_SIZE = 1 << 16
_HIGH_WATER = 1 << 20
_NOT_FORWARDED = {"authorization", "host", "content-length", "transfer-encoding", "keep-alive", "x-forwarded-for"}


def kubelet_path(request: Request, pod: Object) -> str:
    """The path on the kubelet that serves a pod's log, exec, attach or portforward."""
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
    """The container that is asked for, or the only one."""
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
    """Where a node's kubelet listens. Raises ApiError if the node does not say."""
    addresses = {a.get("type"): a.get("address") for a in reversed(lookup(node, "status.addresses") or [])}
    for kind in ("InternalIP", "ExternalIP", "Hostname"):
        if addresses.get(kind):
            port = lookup(node, "status.daemonEndpoints.kubeletEndpoint.Port") or 10250
            return addresses[kind], port
    raise errors.ApiError(500, "", "no preferred addresses found; known addresses: []")


def forward(
    request: Request, responder: Responder, address: tuple[str, int], target: str, tls: ssl.SSLContext | None
) -> None:
    """Pass a request on and its answer back, until one of both ends. Raises ApiError if nobody answers."""
    backend = _dial(address, tls)
    try:
        backend.sendall(_request_head(request, address, target) + request.body)
        client = responder.take_over()
        responder.code = 200
        Relay(client.sock, backend, client.take_buffer()).run()
    except OSError:
        pass  # either end has gone, which is how these connections end
    finally:
        backend.close()


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


class Relay:
    """Bytes between two sockets in both directions, until both have ended.

    The end of one direction is passed on and the other goes on, if the receiver's socket can carry that. TLS cannot
    here: then all ends as soon as one direction has, when what was under way has been delivered, as upstream does it.
    """

    def __init__(self, client: socket.socket, backend: socket.socket, first: bytes) -> None:
        self._ends = (_End(client), _End(backend))
        self._ends[1].pending += first

    def run(self) -> None:
        """Returns when it is over; closing the sockets is the caller's."""
        pairs = (self._ends, self._ends[::-1])
        while True:
            for source, sink in pairs:
                # TLS may hold what it has read already, which no poll shows.
                while len(sink.pending) < _HIGH_WATER and (data := source.read()):
                    sink.pending += data
                sink.flush()
                if source.read_ended and not sink.pending and not sink.end_writes():
                    return
            if all(end.read_ended for end in self._ends) and not any(end.pending for end in self._ends):
                return
            if not self._wait():
                return

    def _wait(self) -> bool:
        """Until something can move; False if nothing did for long after one direction ended."""
        poll = select.poll()
        for end, other in (self._ends, self._ends[::-1]):
            events = 0
            if not end.read_ended and len(other.pending) < _HIGH_WATER:
                events |= select.POLLIN
            if end.pending:
                events |= select.POLLOUT
            if events:
                poll.register(end.sock.fileno(), events)
        half_closed = any(end.read_ended for end in self._ends)
        return bool(poll.poll(_LINGER_MS if half_closed else None))


class _End:
    """One socket of the two, with what waits to be written to it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.setblocking(False)
        self.pending = bytearray()
        self.read_ended = False
        self._writes_ended = False

    def read(self) -> bytes:
        """What there is now; empty if nothing, or if the other side has ended."""
        if self.read_ended:
            return b""
        try:
            data = self.sock.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return b""
        except OSError:
            data = b""
        if not data:
            self.read_ended = True
        return data

    def flush(self) -> None:
        while self.pending:
            try:
                sent = self.sock.send(self.pending)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self.pending.clear()
                self.read_ended = self._writes_ended = True
                return
            del self.pending[:sent]

    def end_writes(self) -> bool:
        """Tell the other side that nothing more comes, while what it sends is still read; False if that cannot be."""
        if isinstance(self.sock, ssl.SSLSocket):
            return False
        if not self._writes_ended:
            self._writes_ended = True
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)
        return True
