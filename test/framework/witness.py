"""A server for containers that are probed: it answers as its paths say, and writes down what it was asked, and when.

    python -m framework.witness CERTIFICATE KEY

It serves HTTP on port 8080, HTTPS on 8443, and gRPC's health service on 9090. Each request gives a line on the
standard output: the machine's uptime in seconds, and the request as a JSON object. What a path answers depends on how
often exactly that path was asked before:

    /ok/...                200
    /status/N/...          N
    /from/N/...            500, and 200 from the Nth time on
    /between/N/M/...       500 from the Nth time to the Mth, else 200
    /slow/N/...            200, after N seconds
    /redirect?to=URL       302
    /unless/NAME           200, until /set/NAME was asked

Of the health service, "" and services that begin with "good" are served, others whose name begins with "bad" are not,
and the rest is unknown.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import grpc

HTTP, HTTPS, GRPC = 8080, 8443, 9090

_lock = threading.Lock()
_asked: Counter[str] = Counter()
_set: set[str] = set()


def tell(**what: object) -> None:
    """Write a line, whole."""
    with _lock:
        print(f"{time.clock_gettime(time.CLOCK_BOOTTIME):.2f} {json.dumps(what)}", flush=True)


def status_of(path: str) -> int:
    """What to answer to a path."""
    with _lock:
        _asked[path] += 1
        times = _asked[path]
    match path.split("/")[1:]:
        case ["status", number, *_]:
            return int(number)
        case ["from", first, *_]:
            return 200 if times >= int(first) else 500
        case ["between", first, last, *_]:
            return 500 if int(first) <= times <= int(last) else 200
        case ["slow", seconds, *_]:
            time.sleep(float(seconds))
        case ["unless", name]:
            return 500 if name in _set else 200
        case ["set", name]:
            _set.add(name)
    return 200


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        url = urlsplit(self.path)
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        tell(scheme=scheme, path=url.path, headers=[list(each) for each in self.headers.items()])
        if url.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", parse_qs(url.query)["to"][0])
        else:
            self.send_response(status_of(url.path))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Who probes hangs up early when it has waited long enough."""


class Health(grpc.GenericRpcHandler):
    """grpc.health.v1.Health/Check. Its messages have one field each, so they are read and written here by hand."""

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method == "/grpc.health.v1.Health/Check":
            return grpc.unary_unary_rpc_method_handler(self._check)
        return None

    def _check(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        service = request[2:].decode()
        headers = [[name, str(value)] for name, value in context.invocation_metadata()]
        tell(scheme="grpc", path=service, headers=headers)
        if service == "" or service.startswith("good"):
            return b"\x08\x01"
        if service.startswith("bad"):
            return b"\x08\x02"
        return context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")


def main() -> None:
    # The first process of a container ignores signals that it has no handler for.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    secure = Server(("", HTTPS), Handler)
    secure.socket = context.wrap_socket(secure.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=secure.serve_forever, name="https", daemon=True).start()
    health = grpc.server(ThreadPoolExecutor(max_workers=4))
    health.add_generic_rpc_handlers((Health(),))
    health.add_insecure_port(f"0.0.0.0:{GRPC}")
    health.start()
    # Last, for it is what is looked at to see that the others listen as well.
    Server(("", HTTP), Handler).serve_forever()


if __name__ == "__main__":
    main()
