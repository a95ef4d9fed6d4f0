"""Serve HTTP/1.1: one thread for each connection, TLS that reloads, and connections that handlers can take over.

Go: net/http

A handler can take a connection over for an upgrade (SPDY, WebSocket), with the bytes that arrived early. A framework
that owns the sockets would not allow that. The code that parses a request handles bytes from any client, so its time
and memory are bounded before the client is authenticated.

Read the files in this order: headers.py, request.py, response.py (what handlers see), mux.py (paths), conn.py and
tlsconn.py (sockets), head.py and transfer.py (HTTP on the wire), connection.py (requests on a socket), room.py (which
connections stay when there are too many), server.py (connections), hangups.py (clients that disconnect).
"""

from pkg.golang.http.conn import Conn
from pkg.golang.http.hangups import HangUps
from pkg.golang.http.headers import Headers, check_field
from pkg.golang.http.mux import Filter, ServeMux, clean_path
from pkg.golang.http.request import BadRequest, Body, Request, parse_path
from pkg.golang.http.response import ClientGone, Handler, HTTPError, ResponseWriter, error
from pkg.golang.http.room import Limits
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
    "Limits",
    "Request",
    "ResponseWriter",
    "ServeMux",
    "Server",
    "check_field",
    "clean_path",
    "error",
    "parse_path",
    "status_text",
]
