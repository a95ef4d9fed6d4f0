"""Carry SPDY inside of WebSockets, for port forwarding by clients whose proxies do not support SPDY.

Go: k8s.io/apiserver/pkg/util/proxy/streamtunnel.go, k8s.io/client-go/tools/portforward/tunneling_connection.go
"""

from __future__ import annotations

from pkg import klog
from pkg.apimachinery.util import httpstream
from pkg.apimachinery.util.httpstream import spdy, wsstream
from pkg.apimachinery.util.httpstream.wsstream.conn import TUNNELING_PREFIX, tunneled_protocols
from pkg.apimachinery.util.proxy.relay import Relay
from pkg.apimachinery.util.proxy.upgradeaware import (
    SWITCHING_PROTOCOLS,
    Backend,
    BackendError,
    Fields,
    dial_for_upgrade,
    forwarded_headers,
    pass_refusal_on,
)
from pkg.apiserver.util.proxy.websocket import Closed, Part, Reply, WebSocket
from pkg.golang import http

_OF_THE_WEBSOCKET = {
    wsstream.WEBSOCKET_PROTOCOL_HEADER.lower(),
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    httpstream.HEADER_UPGRADE.lower(),
    httpstream.HEADER_PROTOCOL_VERSION.lower(),
}


class TunnelingHandler:
    """Unwrap the SPDY data from a client's WebSocket, and wrap the data of the server at `location`."""

    def __init__(self, location: str) -> None:
        self._location = location

    def serve_http(self, w: http.ResponseWriter, req: http.Request) -> None:
        """Serve the connection until it ends; raise HTTPError when the request does not open a WebSocket."""
        protocols = tunneled_protocols(req)
        if not protocols:
            raise http.HTTPError(400, "unable to upgrade: no tunneling spdy protocols provided")
        websocket = WebSocket(req)
        try:
            backend = dial_for_upgrade(self._location, "POST", _spdy_headers(req, protocols))
        except BackendError as err:
            klog.error_s(err, "Error while proxying request")
            raise http.HTTPError(500, str(err)) from err
        try:
            if backend.status != SWITCHING_PROTOCOLS:
                klog.error_s(None, "SPDY upgrade failed", status=backend.status)
                pass_refusal_on(w, backend)
                return
            self._tunnel(w, websocket, backend, protocols)
        finally:
            backend.conn.close()

    def _tunnel(self, w: http.ResponseWriter, websocket: WebSocket, backend: Backend, protocols: list[str]) -> None:
        if not backend.speaks_spdy():
            raise http.HTTPError(500, "unable to upgrade: missing upgrade headers in response")
        chosen = backend.headers.get(httpstream.HEADER_PROTOCOL_VERSION)
        accepted = websocket.accept(TUNNELING_PREFIX + chosen if chosen in protocols else None)
        client, first = w.hijack()
        tunnel = _Tunnel(Relay(client, backend.conn), websocket)
        tunnel.relay.client.write(accepted)
        tunnel.from_backend(backend.body)
        tunnel.relay.run(first)


def _spdy_headers(req: http.Request, protocols: list[str]) -> Fields:
    fields = [(name, value) for name, value in forwarded_headers(req) if name.lower() not in _OF_THE_WEBSOCKET]
    fields.append((httpstream.HEADER_UPGRADE, spdy.HEADER_SPDY_31))
    return fields + [(httpstream.HEADER_PROTOCOL_VERSION, name) for name in protocols]


class _Tunnel:
    """Relay the data, and remove or add the WebSocket framing."""

    def __init__(self, relay: Relay, websocket: WebSocket) -> None:
        self.relay = relay
        self._websocket = websocket
        relay.client.on_data = self.from_client
        relay.backend.on_data, relay.backend.on_end = self.from_backend, self._backend_ended

    def from_client(self, data: bytes) -> None:
        with self._websocket.turn:
            for event in self._websocket.feed(data):
                match event:
                    case Part():
                        self.relay.backend.write(event.data)
                    case Reply():
                        self.relay.client.answer(event.data)
                    case Closed():
                        self.relay.client.write(event.reply)
                        self.relay.client.end_writes()
                        self.relay.backend.end_writes()

    def from_backend(self, data: bytes) -> None:
        if data:
            self.relay.client.write(self._websocket.message(data))

    def _backend_ended(self) -> None:
        self.relay.client.write(self._websocket.close())
        self.relay.client.end_writes()
