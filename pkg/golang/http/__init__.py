"""An HTTP/1.1 server: one thread a connection, TLS that reloads, connections that can be taken over.

Go: net/http

`h11` parses and frames, it never touches a socket; that is what lets a handler take a connection over for an
upgrade (SPDY, WebSocket) with the bytes that came too early. A framework that owns the sockets would not.

Reading order: headers.py, request.py, response.py (what handlers see), mux.py (paths), conn.py and tlsconn.py
(sockets), connection.py (requests on a socket), server.py (connections), hangups.py (clients that go away).
"""

from pkg.golang.http.conn import Conn
from pkg.golang.http.hangups import HangUps, hang_up
from pkg.golang.http.headers import Headers
from pkg.golang.http.mux import Filter, ServeMux, clean_path
from pkg.golang.http.request import BadRequest, Body, Request, parse_target
from pkg.golang.http.response import ClientGone, Handler, HTTPError, ResponseWriter, error
from pkg.golang.http.server import Server
from pkg.golang.http.status import status_text

__all__ = [
    "BadRequest",
    "Body",
    "ClientGone",
    "Conn",
    "Filter",
    "HTTPError",
    "Handler",
    "HangUps",
    "Headers",
    "Request",
    "ResponseWriter",
    "ServeMux",
    "Server",
    "clean_path",
    "error",
    "hang_up",
    "parse_target",
    "status_text",
]
